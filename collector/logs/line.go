package logs

import (
	"slices"
	"time"
)

// Line is one line of a log. It and what it refers to are valid only during the
// call that hands it over: whoever keeps one calls [Line.Clone].
//
// Text, Subsystem and Device are whatever somebody logged: they are bounded in
// length, and otherwise to be trusted in nothing.
type Line struct {
	// Time is the wall clock time the log itself gives, or when the line was
	// read where it gives none.
	Time time.Time
	// BootTime is the time since boot (CLOCK_BOOTTIME) of a line of the current
	// boot; 0: unknown.
	BootTime time.Duration
	// Seq is the number of the line, the same one however often it is read: kmsg's
	// and journald's sequence number; of a file what its readers count, one after
	// the other, which the Position holds. It grows within a boot, a journal, a
	// file with its rotations. 0: there is none.
	Seq uint64
	// Stamp is when the kernel printed the line, by the clock that it stamps its messages
	// with; 0: not known, or not the kernel's.
	Stamp time.Duration
	// Priority is one of emerg, alert, crit, err, warning, notice, info and
	// debug; "": the log does not say.
	Priority string
	// Origin is who has written it, as far as that is sure: [event.OriginKernel] or
	// the facility (kmsg), the path as configured (file), the syslog identifier, unit
	// or command (journald). See [Line.Author].
	Origin string
	// Unit is the systemd unit of the writer, where the source knows it.
	Unit string
	// Subsystem and Device are what the kernel says the line is about ("block",
	// "b8:0"; see Documentation/ABI/testing/dev-kmsg); nil where it does not.
	Subsystem, Device []byte
	// Text is the line without its line end and without what the other fields
	// say. That of a journal entry of several lines holds them all, with "\n"; a
	// record of the kernel's log is one line, in which a newline is "\x0a".
	Text []byte
	// Continues says that the text goes on where an earlier line, not always the
	// one before, ended.
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
