package file

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// recordAfter is how long a kernel line waits for further lines of its record. Syslog daemons read
// a record at once and write its lines one after the other.
const recordAfter = 200 * time.Millisecond

// record is a kernel message whose lines are joined again. /dev/kmsg returns it as one line, with
// "\x0a" for a newline, so that a newline in the name of a process or file can't make the part
// before or after it pass for a message of its own.
type record struct {
	line   logs.Line // its Text is valid until the record is handed over
	since  time.Time // when its latest line came
	open   bool
	wanted bool // all its lines are wanted; else the remaining ones could pass for another message
}

// addToRecord adds a kernel line to the open record, or hands that record over and opens a new one
// if the line does not belong to it.
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

// endRecord closes the open record, and hands it over if it is wanted.
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
