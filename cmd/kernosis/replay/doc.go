// Package replay runs what was recorded, a journal of the agent or a dump of the
// kernel's log, through rules, and reports what would have been reported.
//
// Time is that of the records: the engine is ticked at its deadlines in between,
// no clock is read, and the same input gives the same output to the byte. What
// can't be read is reported with file and line, counted, and passed by.
package replay
