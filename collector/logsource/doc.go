// Package logsource reads the logs that are configured and reports the lines that
// rules look for.
//
// Each log has a goroutine: a reader (packages kmsg, journald and file below
// collector/logs) hands it lines, a matcher of the patterns in force looks at each,
// and a line that one matches becomes an [event.Log] event, with the lines before
// it that the patterns span. Of all others only the number is kept.
//
// # Sources
//
// Each log is a source of its own, "log/<name>": up once it is read to where it
// ends, down with the reason while it can't be read. A reader that ends is started
// again where it was. What a log has lost is reported as [event.Lost] of that stem, at
// most once a second for each reason. Once every log has reported how it is, the stem
// "log" reports of all others that they are not configured.
//
// # Positions
//
// How far a log was handled is saved in Options.StateDir, with the lines before it
// that patterns may yet need: every second in which something was reported, at the
// latest after saveEvents events, else every ten seconds, and before the source
// reports that it is up. What was reported since comes again after a kill, with the
// numbers it had, by which the engine knows it (it remembers 4096 events).
//
// # Boots
//
// A line of before this boot is not reported: what it says of the kernel is over. It
// counts as skipped.
//
// # Streams
//
// Lines of different units of a journal are not neighbours, so each unit has a
// matcher of its own, the maxStreams that were last heard of. Rules are replaced
// between two lines, and the new matchers know the lines before.
package logsource
