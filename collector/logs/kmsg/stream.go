package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

const (
	// skipAtMost bounds skipping old records, in case they come faster than they can be read.
	skipAtMost = 2 * time.Second
	// clockError is the least change of the clocks' difference: waking up causes smaller ones.
	clockError = 100 * time.Millisecond
)

// stream is the state of one Run.
type stream struct {
	r      *Reader
	dev    device
	handle func(logs.Item) error
	once   bool // end where the log ends
	buf    []byte

	next  uint64 // the sequence number that is expected
	known bool   // next is set
	saved bool   // next comes from a Position and was not reached yet
	seen  uint64 // one more than the last sequence number read
	owed  uint64 // records read whose number is unknown: they are no gap

	reported bool          // Status was called
	skip     bool          // records before cutoff are skipped
	cutoff   time.Duration // by the scheduler's clock; negative: skip all
	skipTo   time.Time     // when to stop skipping in any case

	clock  *hostfs.Clock
	offset time.Duration // from the scheduler's clock to CLOCK_BOOTTIME
	exact  bool          // offset was measured, on a record that was waited for; maybe by an earlier stream
	waited bool          // the next record was waited for, so it is new

	rec  hostfs.KernelRecord
	line logs.Line
}

// start decides where to begin.
func (s *stream) start() error {
	if s.r.cfg.Position != "" {
		pos, ok := parsePosition(s.r.cfg.Position)
		if ok {
			s.known = true
			if pos.boot == s.r.boot {
				s.next, s.saved = pos.next, true
				if pos.offset != 0 {
					s.offset, s.exact = pos.offset, true
				}
			}
			return nil
		}
		if err := s.lose(logs.BadPosition, 0); err != nil {
			return err
		}
	}
	s.skip, s.skipTo, s.cutoff = true, time.Now().Add(skipAtMost), -1
	if s.r.cfg.Lookback > 0 {
		s.cutoff = max(0, hostfs.Monotonic()-s.r.cfg.Lookback)
	}
	return nil
}

// run reads until ctx ends.
func (s *stream) run(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := s.dev.read(s.buf)
		var handled error
		switch {
		case err == nil && n > 0:
			handled = s.record(s.buf[:n])
		case errors.Is(err, unix.EAGAIN):
			if handled = s.atEnd(); handled != nil || s.once {
				return handled
			}
			err = s.dev.wait(ctx)
			s.waited = true
		case errors.Is(err, unix.EINVAL):
			handled, err = s.tooLong(), nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			// Overrun: the next record's number shows how many were lost.
			err = nil
		case err == nil:
			err = io.ErrUnexpectedEOF // kmsg has no end
		}
		if handled != nil {
			return handled
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", s.r.cfg.Path, err)
		}
	}
	return nil
}

// record hands over one record, after a loss of what is missing before it.
func (s *stream) record(b []byte) error {
	numbered, parseErr := hostfs.ParseKernelRecord(b, &s.rec)
	if !numbered {
		s.owed++
		return s.lose(logs.Malformed, 1)
	}
	seq := s.rec.Seq
	s.seen = seq + 1
	if s.known && seq < s.next {
		return nil // handed over by an earlier run
	}
	if s.known && seq > s.next+s.owed {
		if err := s.lose(logs.Overrun, seq-s.next-s.owed); err != nil {
			return err
		}
	}
	s.owed, s.saved = 0, false
	s.advance(seq)
	switch {
	case s.passBy():
	case parseErr != nil:
		if err := s.lose(logs.Malformed, 1); err != nil {
			return err
		}
	default:
		s.reportOpen()
		s.fill()
		if err := s.handle(logs.Item{Line: &s.line}); err != nil {
			return err
		}
	}
	s.advance(seq + 1)
	return nil
}

// passBy reports whether to skip the record because it is older than the start of reading.
func (s *stream) passBy() bool {
	if s.skip && (s.cutoff >= 0 && s.rec.Time >= s.cutoff || !time.Now().Before(s.skipTo)) {
		s.skip = false
	}
	return s.skip
}

// fill fills the line from the record.
func (s *stream) fill() {
	if s.waited {
		s.waited = false
		// No record is from the future, and one that was waited for is from now.
		if o := hostfs.BootTime() - s.rec.Time; o < s.offset || o > s.offset+clockError {
			s.offset = o
		}
		s.exact = true
	}
	boot := s.rec.Time + s.offset
	s.line = logs.Line{
		Time: s.clock.Wall(boot), BootTime: boot, Seq: s.rec.Seq, Stamp: s.rec.Time,
		Priority: logs.PriorityName(s.rec.Level), Origin: facilityName(s.rec.Facility),
		Text: s.rec.Text, Continues: s.rec.Fragment,
	}
}

func (s *stream) advance(next uint64) {
	s.next, s.known = next, true
	pos := position{boot: s.r.boot, next: next}
	if s.exact {
		pos.offset = s.offset
	}
	s.r.mu.Lock()
	s.r.pos = pos
	s.r.mu.Unlock()
}

// atEnd is called when everything was read: further records are new.
func (s *stream) atEnd() error {
	s.skip = false
	defer s.reportOpen()
	if !s.saved || s.seen == 0 || s.seen >= s.next {
		return nil
	}
	// The numbers of this boot end before the position: the machine was reset to a snapshot. It is
	// unknown which of the records were handed over before.
	s.saved = false
	s.advance(s.seen)
	return s.lose(logs.BadPosition, 0)
}

// reportOpen reports once that the log is being read.
func (s *stream) reportOpen() {
	if !s.reported && s.r.cfg.Status != nil {
		s.r.cfg.Status(nil)
	}
	s.reported = true
}

// tooLong is called when a record did not fit, which the kernel then skips.
func (s *stream) tooLong() error {
	if len(s.buf) < maxBuffer {
		s.buf = make([]byte, 2*len(s.buf))
	}
	s.owed++
	return s.lose(logs.TooLong, 1)
}

// lose reports a loss, unless the lost lines would have been skipped.
func (s *stream) lose(reason logs.Reason, lines uint64) error {
	if s.skip {
		return nil
	}
	return s.handle(logs.Item{Loss: &logs.Loss{Reason: reason, Lines: lines}})
}

// facilityName returns the name of the facility; only the kernel's is trustworthy.
func facilityName(facility int) string {
	if facility < 0 || facility >= len(facilityNames) {
		return "unknown"
	}
	return facilityNames[facility]
}

// facilityNames is a constant table, indexed by number; see syslog(3).
//
//nolint:gochecknoglobals // immutable, and read for every record
var facilityNames = [...]string{
	event.OriginKernel, "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
	"ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}
