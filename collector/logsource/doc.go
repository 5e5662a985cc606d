// Package logsource reads the configured logs and reports the lines that match patterns of rules.
//
// Each log has a goroutine: a reader (the packages below collector/logs) hands
// lines to it, a matcher checks each line against the current patterns, and a line that matches
// becomes an [event.Log] event, together with the earlier lines that the patterns span. All other
// lines are only counted.
//
// # Sources
//
// Each log is a source of its own, "log/<name>": up once it was read to its end, down with the
// reason while it can't be read. A reader that ends is restarted where it stopped. Lost lines are
// reported as [event.Lost] of that stem, at most once a second for each reason. Once every log has
// reported its state, the stem "log" reports that all other logs are not configured.
//
// # Positions
//
// The position in each log is saved in Options.StateDir, with the earlier lines that patterns may
// still need: every second if something was reported, at the latest after saveEvents events, else
// every ten seconds, and before the source reports that it is up. After a kill, the events since
// the last save are reported again with the same numbers, so that the engine recognizes them (it
// remembers 4096 events).
//
// Lines from before this boot describe a kernel that no longer runs; they are counted as skipped.
// The exception is the log "crash", whose lines go only to rules that name it.
//
// # Streams
//
// Lines of different units of a journal are not neighbours, so each unit has a matcher of its own,
// for the maxStreams units that logged last. Rules are replaced between two lines, and the new
// matchers take over the earlier lines.
package logsource
