package file

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// lossStep is more than the number of lines handed over between two saves of a position.
const lossStep = 1 << 20

// hand hands over the lines of the current file that were read; if final is set, the rest as well.
func (s *follower) hand(now time.Time, final bool) error {
	t := s.cur
	for {
		b, size, p := t.lines.next(final)
		var err error
		switch p {
		case none:
			if final {
				return s.endRecord()
			}
			return nil
		case whole, beginning:
			err = s.handLine(b, now)
		case ending:
			err = s.lose(logs.TooLong, 1, t.lines.cut)
		case dropped:
		}
		if err != nil {
			return err
		}
		t.offset += int64(size)
		if k := s.r.dec.kernel; k != nil {
			k.passed = k.stamp
		}
		if !s.record.open { // else the record is read again after a restart
			s.r.setPosition(t, s.known, s.lines)
		}
	}
}

// handLine hands over one line if it is wanted.
func (s *follower) handLine(b []byte, now time.Time) error {
	text, at, v := s.r.dec.decode(b, now)
	wanted := v == take && !at.Before(s.cutoff)
	if v == take {
		s.parsed++
	}
	switch {
	case v == malformed:
		s.bad++
		s.unparsed++
		return nil
	case v == passBy || !wanted && s.r.dec.kernel == nil:
		return nil
	case !wanted:
		return s.addToRecord(nil, at, false)
	}
	if err := s.reportMalformed(); err != nil {
		return err
	}
	if s.r.dec.kernel != nil {
		return s.addToRecord(text, at, true)
	}
	s.lines++
	s.line = logs.Line{Time: at, Seq: s.lines, Origin: s.r.cfg.Path, Text: text}
	return s.handle(logs.Item{Line: &s.line})
}

// reportMalformed reports consecutive malformed lines together: with a wrong format it is every line.
func (s *follower) reportMalformed() error {
	if s.bad == 0 {
		return nil
	}
	n := s.bad
	s.bad = 0
	return s.lose(logs.Malformed, n, 0)
}

// reportCut reports a line that is too long and whose end will not come.
func (s *follower) reportCut(t *tail) error {
	if !t.lines.cutting {
		return nil
	}
	return s.lose(logs.TooLong, 1, t.lines.cut)
}

func (s *follower) lose(reason logs.Reason, lines, bytes uint64) error {
	if err := s.endRecord(); err != nil {
		return err
	}
	switch reason {
	case logs.Truncated, logs.Rotated, logs.BadPosition:
		// An earlier reading may have found other lines here, which must not get the same numbers.
		s.lines += lossStep
	}
	return s.handle(logs.Item{Loss: &logs.Loss{Reason: reason, Lines: lines, Bytes: bytes}})
}

// recordAfter is how long a kernel line waits for further lines of its record. Syslog daemons read
// a record at once and write its lines one after the other.
const recordAfter = 200 * time.Millisecond

// record is a kernel message whose lines are joined again, with "\x0a" for a newline, as /dev/kmsg
// returns it. Otherwise a newline in the name of a process or file could make a part of the message
// look like a separate message.
type record struct {
	line   logs.Line // its Text is valid until the record is handed over
	since  time.Time // when its latest line came
	open   bool
	wanted bool // all its lines are wanted; else the remaining ones could pass for another message
}

// addToRecord adds a kernel line to the open record if it belongs there; else it begins a new one.
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
