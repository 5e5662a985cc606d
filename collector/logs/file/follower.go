package file

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/logs"
)

// follower is the state of one Run. It reads one file at a time: the one at the path or a rotated one.
type follower struct {
	r      *Reader
	handle func(logs.Item) error
	start  logs.Position // where to begin

	begun  bool
	cur    *tail     // nil: there is no file
	failed error     // why the current file could not be read just now
	name   string    // where the path led last, links resolved
	known  knownList // rotated files of name that need no reading

	lines  uint64    // number of the last line that was handed over
	cutoff time.Time // older lines are skipped; zero: none
	bad    uint64    // malformed lines that were not reported yet

	parsed, unparsed uint64 // lines that are in the format, and that are not

	nowhere time.Time // since when the path leads nowhere; zero if it leads to a file

	mu      sync.Mutex // guards looking and steps, and keeps reports in order
	looking bool
	steps   uint64 // of all looks

	line   logs.Line
	record record
}

// names returns the files to watch.
func (s *follower) names() []string {
	names := []string{s.r.tree.below(s.r.cfg.Path)}
	if s.cur != nil && s.cur.name != names[0] {
		names = append(names, s.cur.name)
	}
	return names
}

// pause returns how long to wait if no file changes.
func (s *follower) pause() time.Duration {
	pause := s.r.pollEvery
	if s.record.open {
		pause = min(pause, max(time.Millisecond, recordAfter-time.Since(s.record.since)))
	}
	switch {
	case s.cur == nil:
	case s.cur.packed != nil:
		pause = min(pause, retryEvery, s.r.goneFor)
	case s.cur.lines.rest() > 0:
		pause = min(pause, max(time.Millisecond, s.r.partialAfter-time.Since(s.cur.grown)))
	}
	return pause
}

// report reports whether the file can be read.
func (s *follower) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps++
	s.r.cfg.Status(err)
}

// advance counts a step of a look, or ends the look.
func (s *follower) advance(looking bool) {
	s.mu.Lock()
	s.looking = looking
	s.steps++
	s.mu.Unlock()
}

// errHangs is reported for a file whose disk or file server does not answer.
var errHangs = errors.New("no answer: its disk or file server may hang")

// reportHangs reports a look that makes no progress, until ended is closed. The thread that hangs in a
// system call can't be woken; once the file answers, the look itself reports that.
func (s *follower) reportHangs(ended <-chan struct{}) {
	ticker := time.NewTicker(s.r.hangsAfter)
	defer ticker.Stop()
	for before := uint64(0); ; {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		if s.looking && s.steps == before {
			s.r.cfg.Status(&fs.PathError{Op: "read", Path: s.r.cfg.Path, Err: errHangs})
		}
		before = s.steps
		s.mu.Unlock()
	}
}

// look reads everything available. It returns the error of handle.
func (s *follower) look(ctx context.Context) error {
	if !s.begun {
		if s.lines == 0 {
			// Don't start from 1: an earlier start without position may have used these numbers.
			s.lines = uint64(time.Now().UnixMicro())
		}
		if err := s.begin(); err != nil || !s.begun {
			return err
		}
	}
	for ctx.Err() == nil {
		if s.cur == nil && !s.next() {
			return nil
		}
		more, err := s.step(ctx)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// step reads the current file, and moves to the next one if it is finished. more: there is more to read.
func (s *follower) step(ctx context.Context) (more bool, err error) {
	if err := s.read(ctx, false); err != nil || ctx.Err() != nil || s.cur == nil {
		return s.cur == nil, err
	}
	if s.packedDone() {
		return true, s.finish(ctx)
	}
	if s.failed != nil {
		if errors.Is(s.failed, io.ErrUnexpectedEOF) {
			return false, nil // it is still being compressed
		}
		s.report(&fs.PathError{Op: "read", Path: s.r.cfg.Path, Err: s.failed})
		if errors.Is(s.failed, unix.ESTALE) {
			// The file server has replaced the file by another one.
			s.start, s.begun = s.r.Position(), false
			s.close()
		}
		return false, nil // retried at the next look
	}
	st, statErr := s.r.tree.stat(s.r.cfg.Path)
	if statErr == nil {
		s.nowhere = time.Time{}
		switch {
		case st.sameFile(s.cur.stat):
			s.cutoff = time.Time{} // what comes now is new
			s.report(nil)
			return false, s.partial()
		case st.size == 0 && !s.abandoned() && !s.overtaken(st):
			// The new file exists, but the writer has not opened it yet. Until it does, it writes to the
			// old file, which must be read to its end first.
			s.report(nil)
			return false, s.partial()
		}
		return true, s.finish(ctx)
	}
	if s.overtaken(fileStat{}) {
		return true, s.finish(ctx)
	}
	if s.nowhere.IsZero() {
		s.nowhere = time.Now()
	}
	if time.Since(s.nowhere) >= s.r.goneFor {
		s.report(statErr)
		if s.abandoned() {
			return true, s.finish(ctx)
		}
	}
	return false, s.partial()
}

// abandoned reports whether the current file is deleted and has not grown for goneFor. Such a file
// is not kept open forever, because that keeps its blocks in use.
func (s *follower) abandoned() bool {
	return s.cur.stat.links == 0 && time.Since(s.cur.grown) >= s.r.goneFor
}

// finish reads the current file to its end and closes it. What can't be read is lost.
func (s *follower) finish(ctx context.Context) error {
	if err := s.read(ctx, true); err != nil || ctx.Err() != nil || s.cur == nil {
		return err
	}
	t := s.cur
	if s.failed != nil {
		if err := s.lose(logs.Rotated, 0, 0); err != nil {
			return err
		}
	}
	if err := s.reportCut(t); err != nil {
		return err
	}
	s.r.cfg.Log.Debug("log file read to its end", "path", s.r.cfg.Path, "file", t.f.Name(), "inode", t.stat.ino, "offset", t.offset)
	s.done(t)
	s.close()
	return nil
}

// next opens the file to read: the first rotated one that was not read, else the one at the path,
// from its start. It returns false if there is none.
func (s *follower) next() bool {
	path, err := s.r.tree.open(s.r.cfg.Path)
	if t := s.between(path); t != nil {
		closeFile(path.f)
		s.open(t)
		return true
	}
	if err != nil {
		// All of a file that appears later is new.
		s.r.setFresh(s.known, s.lines)
		s.report(err)
		return false
	}
	if path.name != s.name {
		// The path leads elsewhere: files that were rotated there before are old.
		s.name, s.known = path.name, nil
		s.noteOlder(listHeads(s.name), path.f, path.head())
	}
	s.open(s.newTail(path.f, path.stat, plain))
	s.report(nil)
	return true
}

// newTail returns a tail at the start of a file of the current name.
func (s *follower) newTail(f *os.File, st fileStat, p packing) *tail {
	t := &tail{f: f, name: s.name, stat: st, lines: newSplitter(s.r.maxLine)}
	if p != plain {
		t.packed = newPacked(f, p)
	}
	return t
}

// open makes t the current file.
func (s *follower) open(t *tail) {
	t.grown = time.Now()
	s.cur = t
	s.r.cfg.Log.Debug("log file opened", "path", s.r.cfg.Path, "file", t.f.Name(), "inode", t.stat.ino, "offset", t.offset)
	s.r.setPosition(t, s.known, s.lines)
}

// read hands over what the current file has, with final also an unfinished last line. It sets failed
// if the file can't be read. If another file has to be read first, there is no current one afterwards.
func (s *follower) read(ctx context.Context, final bool) error {
	s.failed = s.cur.look()
	for ctx.Err() == nil {
		if errors.Is(s.failed, errRewritten) {
			if err := s.rewritten(ctx); err != nil || s.cur == nil {
				return err
			}
			s.failed = s.cur.look()
			continue
		}
		if s.failed != nil {
			break
		}
		s.advance(true)
		now, first := time.Now(), s.cur.readAt() == 0
		s.failed = s.cur.fill(now)
		atEnd := errors.Is(s.failed, io.EOF)
		if atEnd {
			s.failed = nil
		} else if s.failed != nil {
			continue
		}
		if first && !atEnd && s.moved() {
			s.close()
			return nil
		}
		if err := s.hand(now, final && atEnd); err != nil {
			return err
		}
		if atEnd {
			break
		}
	}
	return s.reportMalformed()
}

// partial hands over a last line and a kernel record whose ends have not come in time.
func (s *follower) partial() error {
	if s.record.open && time.Since(s.record.since) >= recordAfter {
		if err := s.endRecord(); err != nil {
			return err
		}
	}
	if s.cur.lines.rest() == 0 || time.Since(s.cur.grown) < s.r.partialAfter {
		return nil
	}
	return s.hand(time.Now(), true)
}

// rewritten is called when the current file no longer holds what was read from it, because it was
// truncated. If a copy was made before, the rest is read from the copy.
func (s *follower) rewritten(ctx context.Context) error {
	cut := s.cur
	if err := s.endRecord(); err != nil {
		return err
	}
	s.r.cfg.Log.Debug("log file truncated", "path", s.r.cfg.Path, "inode", cut.stat.ino, "offset", cut.offset, "read", cut.readAt(), "size", cut.stat.size)
	if c := s.copyOf(cut); c != nil {
		s.r.cfg.Log.Debug("log file's copy found", "path", s.r.cfg.Path, "file", c.f.Name(), "inode", c.stat.ino, "offset", c.offset)
		s.cur = c
		s.r.setPosition(c, s.known, s.lines)
		if err := s.finish(ctx); err != nil || ctx.Err() != nil {
			closeFile(cut.f)
			return err
		}
	} else {
		if err := s.hand(time.Now(), true); err != nil {
			return err
		}
		if err := s.reportCut(cut); err != nil {
			return err
		}
		if err := s.lose(logs.Truncated, 0, 0); err != nil {
			return err
		}
	}
	cut.offset, cut.head = 0, nil
	cut.lines.reset()
	s.open(cut)
	return nil
}

func (s *follower) close() {
	s.record.open = false // what was not handed over is read again
	if s.cur != nil {
		closeFile(s.cur.f)
		s.cur = nil
	}
}
