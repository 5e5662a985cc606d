package journald

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// Unverified begins the Origin of writers that use a name reserved for the kernel's log.
const Unverified = "unverified:"

// session is the state of one Run.
type session struct {
	r      *Reader
	handle func(logs.Item) error
	boot   string // this boot's id

	since     int64         // where to begin without a cursor (Unix, µs)
	cursor    []byte        // of the last entry that was handed over; nil: none yet
	first     bool          // the next entry is the child's first one
	gapless   bool          // the first entry has to be the cursor's
	entries   int           // how many the children have printed
	folders   []os.FileInfo // journald's, when the child was started; nil: they are not checked
	waiting   bool          // the child was in uninterruptible sleep at the latest check
	handleErr error

	entry Entry
	line  logs.Line
	names map[string]string // one string per name, because the same names come again and again
}

// maxNames bounds the number of cached strings.
const maxNames = 1024

// begin returns the session of a run, which begins at the configured place.
func (r *Reader) begin(handle func(logs.Item) error) (*session, error) {
	boot := strings.ReplaceAll(hostfs.BootID(), "-", "") // as journald writes it; "" if it can't be read
	s := &session{r: r, handle: handle, boot: boot, names: map[string]string{}}
	start := position{since: max(0, time.Now().Add(-r.cfg.Lookback).UnixMicro())}
	if r.cfg.Position != "" {
		if saved, ok := parsePosition(r.cfg.Position); ok {
			start = saved
		} else if err := s.lose(logs.BadPosition, 0, 0); err != nil {
			return nil, err
		}
	}
	s.since = start.since
	filter := r.cfg.Filter.sum()
	if start.cursor != "" {
		s.cursor, s.gapless = []byte(start.cursor), start.filter == filter
	}
	start.filter = filter
	r.mu.Lock()
	r.begun = start
	r.mu.Unlock()
	return s, nil
}

// run runs journalctl once, and returns why it ended.
func (s *session) run(ctx context.Context) error {
	command, err := s.r.command(s.r.cfg.Root)
	if err != nil {
		return err
	}
	if s.r.cfg.Directory == "" {
		if s.folders, err = s.r.foldersNow(s.r.look); err != nil {
			return err
		}
	}
	args := s.args()
	s.r.cfg.Log.Debug("journalctl is started", "command", command, "args", args)
	c, err := startChild(ctx, s.r.cfg.Root, command, args)
	if err != nil {
		return err
	}
	s.first, s.waiting = s.cursor != nil, false
	err = s.decode(c)
	ended := c.stop()
	if err == nil || errors.Is(err, io.EOF) {
		return ended
	}
	return err
}

// decode hands over the entries that the child prints.
func (s *session) decode(c *child) error {
	if err := c.out.SetReadDeadline(time.Now().Add(settled)); err != nil {
		return err
	}
	d := NewDecoder(&patient{f: c.out, again: s.r.check, quiet: func() error { return s.quiet(c) }}, maxMessage)
	for {
		if err := d.Next(&s.entry); err != nil {
			return err
		}
		if s.entries++; s.entries == 1 {
			s.r.cfg.Status(nil)
		}
		if s.handleErr = s.take(); s.handleErr != nil {
			return s.handleErr
		}
	}
}

// quiet is called from time to time while the child runs. The child prints nothing while there is
// nothing to read, so a running child counts as healthy unless it waits for its disk at each call.
func (s *session) quiet(c *child) error {
	waited := s.waiting
	s.waiting = c.waits()
	switch {
	case !s.waiting:
		s.r.cfg.Status(nil)
	case waited:
		s.r.cfg.Status(errHangs)
	}
	if s.folders == nil {
		return nil
	}
	now, err := s.r.foldersNow(func() error { return nil })
	if err != nil {
		s.r.cfg.Status(fmt.Errorf("journal's folders: %w", err))
		return nil
	}
	if created(s.folders, now) {
		return errNewFolder
	}
	return nil
}

// patient continues to read when a deadline has passed.
type patient struct {
	f     *os.File
	again time.Duration // until the next deadline
	quiet func() error  // called when the deadline has passed; its error ends reading
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	for {
		n, err := p.f.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := p.quiet(); err != nil {
			return 0, err
		}
		if err := p.f.SetReadDeadline(time.Now().Add(p.again)); err != nil {
			return 0, err
		}
	}
}

// take hands over one entry. It returns the error of handle.
func (s *session) take() error {
	e := &s.entry
	if !isCursor(string(e.Cursor)) {
		return s.lose(logs.Malformed, 1, 0) // unexpected output of the child
	}
	if s.first {
		s.first = false
		if sameEntry(e.Cursor, s.cursor) {
			return nil // handed over by an earlier run or child
		}
		if s.gapless {
			// The entry is gone: it was vacuumed, with an unknown number of entries after it.
			if err := s.lose(logs.Rotated, 0, 0); err != nil {
				return err
			}
		}
	}
	if err := s.deliver(e); err != nil {
		return err
	}
	s.cursor, s.gapless = append(s.cursor[:0], e.Cursor...), true
	s.r.mu.Lock()
	s.r.cursor = append(s.r.cursor[:0], e.Cursor...)
	s.r.mu.Unlock()
	return nil
}

func (s *session) deliver(e *Entry) error {
	f := s.r.cfg.Filter
	if loss := f.dropped(e); loss != nil {
		if err := s.handle(logs.Item{Loss: loss}); err != nil {
			return err
		}
	}
	if string(e.Transport) == "driver" && !f.wants(e) {
		return nil // it was requested only for its number
	}
	s.fill(e)
	if err := s.handle(logs.Item{Line: &s.line}); err != nil {
		return err
	}
	if cut := e.MessageSize - uint64(len(e.Message)); cut > 0 {
		return s.lose(logs.TooLong, 1, cut)
	}
	return nil
}

// fill fills the line from the entry.
func (s *session) fill(e *Entry) {
	s.line = logs.Line{
		Time: time.UnixMicro(int64(e.Realtime)).UTC(), Seq: e.Seq(),
		Origin: s.origin(e), Unit: s.name(e.Unit), Text: e.Message,
	}
	if string(e.Transport) == "kernel" {
		s.line.Stamp = time.Duration(e.Stamp) * time.Microsecond
		// Text behind a newline, such as a file's name, would look like a message of its own.
		s.line.Text = logs.EscapeControl(e.Message)
	}
	if len(e.Priority) == 1 {
		s.line.Priority = logs.PriorityName(int(e.Priority[0]) - '0')
	}
	if string(e.BootID) == s.boot {
		s.line.BootTime = time.Duration(e.Monotonic)*time.Microsecond + suspended()
	}
}

// origin returns the writer of the entry.
func (s *session) origin(e *Entry) string {
	name := e.Identifier
	if len(name) == 0 {
		name = e.Unit
	}
	if len(name) == 0 {
		name = e.Comm
	}
	switch string(name) {
	case event.OriginKernel:
		if string(e.Transport) == "kernel" && (len(e.Facility) == 0 || string(e.Facility) == "0") {
			return event.OriginKernel
		}
		return Unverified + event.OriginKernel
	case event.OriginProcess:
		return Unverified + event.OriginProcess
	}
	return s.name(name)
}

// name returns b as a string, and the same string for the same bytes.
func (s *session) name(b []byte) string {
	if name, ok := s.names[string(b)]; ok {
		return name
	}
	if len(s.names) >= maxNames {
		clear(s.names)
	}
	name := string(b)
	s.names[name] = name
	return name
}

func (s *session) lose(reason logs.Reason, lines, bytes uint64) error {
	return s.handle(logs.Item{Loss: &logs.Loss{Reason: reason, Lines: lines, Bytes: bytes}})
}

// suspended returns the time in suspend since boot, which journald's monotonic times leave out.
func suspended() time.Duration {
	monotonic := hostfs.Monotonic()
	return max(0, (hostfs.BootTime() - monotonic).Truncate(time.Millisecond))
}
