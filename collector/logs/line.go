package logs

import (
	"slices"
	"time"
)

// Line is one line of a log. It and what it refers to are valid only during the call that hands it
// over; use [Line.Clone] to keep one.
//
// Text, Subsystem and Device are untrusted input: anybody may have logged them. Only their length
// is bounded.
type Line struct {
	// Time is the wall clock time according to the log, or the time of reading if the log has
	// none.
	Time time.Time
	// BootTime is the time since boot (CLOCK_BOOTTIME) of a line of the current boot; 0 if
	// unknown.
	BootTime time.Duration
	// Seq is the number of the line. It is the same each time the line is read: the sequence
	// number of kmsg and journald; for a file, a count of lines that the Position holds. It grows
	// within a boot, a journal, or a file with its rotations. 0 if there is none.
	Seq uint64
	// Stamp is when the kernel printed the line, by the clock of its own time stamps; 0 if
	// unknown, or if the line is not from the kernel.
	Stamp time.Duration
	// Priority is one of emerg, alert, crit, err, warning, notice, info and debug; "" if the log
	// has none.
	Priority string
	// Origin is the writer of the line, as far as it is certain: [event.OriginKernel] or the
	// facility (kmsg), the path as configured (file), the syslog identifier, unit or command
	// (journald). See [Line.Author].
	Origin string
	// Unit is the systemd unit of the writer, if the source knows it.
	Unit string
	// Subsystem and Device are what the line is about according to the kernel ("block", "b8:0";
	// see Documentation/ABI/testing/dev-kmsg); nil if the kernel names none.
	Subsystem, Device []byte
	// Text is the line without its line end and without the contents of the other fields. A
	// journal entry of several lines has them all, separated by "\n". A record of the kernel's log
	// is one line, in which a newline is "\x0a".
	Text []byte
	// Continues is set if the text continues an earlier line, which need not be the one before.
	Continues bool
}

// Clone returns a copy that stays valid.
func (l *Line) Clone() Line {
	c := *l
	c.Subsystem, c.Device, c.Text = slices.Clone(l.Subsystem), slices.Clone(l.Device), slices.Clone(l.Text)
	return c
}

// PriorityName returns the name of a syslog level, 0 (emerg) to 7 (debug); ""
// for any other number.
func PriorityName(level int) string {
	switch level {
	case 0:
		return "emerg"
	case 1:
		return "alert"
	case 2:
		return "crit"
	case 3:
		return "err"
	case 4:
		return "warning"
	case 5:
		return "notice"
	case 6:
		return "info"
	case 7:
		return "debug"
	default:
		return ""
	}
}
