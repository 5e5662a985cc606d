package file

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// recordAfter is how long a line of the kernel's waits for further lines of its record, which
// a syslog daemon reads at once and writes one after the other.
const recordAfter = 200 * time.Millisecond

// record is a message of the kernel's whose lines are put together again. /dev/kmsg gives it
// as one line, with "\x0a" for a newline, so that what is behind a newline in a name of a
// process or file does not pass for a message, nor what is before it.
type record struct {
	line   logs.Line // whose Text is valid until the record is handed over
	since  time.Time // its latest line came then
	open   bool
	wanted bool // all its lines are; else what is left of it could pass for another message
}

// addToRecord takes one line of the kernel's, and hands over the record before it unless it
// is of that one.
func (s *follower) addToRecord(text []byte, at time.Time, wanted bool) error {
	k, r := s.r.dec.kernel, &s.record
	if r.open && k.continues && len(r.line.Text)+len(text) < s.r.maxLine {
		r.line.Text = append(append(r.line.Text, `\x0a`...), text...)
		r.since, r.wanted = time.Now(), r.wanted && wanted
		return nil
	}
	if err := s.endRecord(); err != nil {
		return err
	}
	r.line = logs.Line{
		Time: at, Origin: event.OriginKernel, Stamp: k.stamp, Continues: k.continues, Text: append(r.line.Text[:0], text...),
	}
	r.since, r.open, r.wanted = time.Now(), true, wanted
	return nil
}

// endRecord hands over the record that is open, if it is wanted.
func (s *follower) endRecord() error {
	if !s.record.open {
		return nil
	}
	s.record.open = false
	if s.record.wanted {
		s.lines++
		s.line = s.record.line
		s.line.Seq = s.lines
		if err := s.handle(logs.Item{Line: &s.line}); err != nil {
			return err
		}
	}
	if s.cur != nil {
		s.r.setPosition(s.cur, s.known, s.lines)
	}
	return nil
}
