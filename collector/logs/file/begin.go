package file

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/logs"
)

// begin decides where to begin, and opens the first file. begun stays false
// while that can't be said: a file that can't be read yet.
func (s *follower) begin() error {
	path, err := s.r.tree.open(s.r.cfg.Path)
	s.name = path.name
	if err != nil {
		s.name = s.r.tree.below(s.r.cfg.Path)
	}
	s.known = nil
	if s.start != "" {
		pos, posErr := parsePosition(s.start)
		if posErr == nil {
			if pos.Lines > 0 {
				s.lines = pos.Lines
			}
			return s.beginAt(pos, path, err)
		}
		if err := s.lose(logs.BadPosition, 0, 0); err != nil {
			closeFile(path.f)
			return err
		}
		s.start = ""
	}
	return s.beginNow(path, err)
}

// beginAt goes on where an earlier reader was.
func (s *follower) beginAt(pos position, path found, pathErr error) error {
	all := siblings(s.name)
	t := s.find(pos, path, all)
	if t == nil && !pos.Fresh {
		if pathErr != nil {
			s.tell(pathErr) // what the path leads to may tell where the rest is
			return nil
		}
		// Rotated away and deleted, or compressed in a way that is not read.
		if err := s.lose(logs.Rotated, 0, 0); err != nil {
			closeFile(path.f)
			return err
		}
	}
	s.start, s.begun = "", true
	if pos.Offset == 0 {
		// What came into a file of which nothing was handed over may have been moved
		// to a copy; next opens what is to be read first.
		s.noteKnown(all, pos.Known)
		closeFile(path.f)
		if t != nil && t.f != path.f {
			closeFile(t.f)
		}
		return nil
	}
	if t == nil {
		s.noteOlder(all, path.stat, path.head())
		closeFile(path.f)
		return nil
	}
	s.noteOlder(all, t.stat, t.head)
	if t.f != path.f {
		closeFile(path.f)
	}
	t.lines.cutting, t.lines.cut = pos.Cutting, pos.Cut
	s.open(t)
	return nil
}

// find returns the file that the position is in: the very file, at the path or
// rotated, or else one with the same content, which has another inode after a
// copy, and another device number after a boot.
func (s *follower) find(pos position, path found, all []sibling) (same *tail) {
	look := func(f *os.File, st fileStat, p packing) (exact bool) {
		t := &tail{f: f, name: s.name, stat: st, offset: pos.Offset, lines: newSplitter(s.r.cfg.MaxLine)}
		if p != plain {
			t.packed = newPacked(f, p)
		}
		if !pos.isIn(t) {
			return false
		}
		exact = st.ino == pos.Ino && st.dev == pos.Dev
		if same == nil || exact {
			if same != nil && same.f != path.f {
				closeFile(same.f)
			}
			same = t
		}
		return exact
	}
	if path.f != nil && look(path.f, path.stat, plain) {
		return same
	}
	for _, c := range all {
		f, ok := c.open()
		if !ok {
			continue
		}
		if look(f, c.stat, c.packing) {
			return same
		}
		if same == nil || same.f != f {
			closeFile(f)
		}
	}
	return same
}

// beginNow begins without a position.
func (s *follower) beginNow(path found, pathErr error) error {
	all, missing := siblings(s.name), errors.Is(pathErr, fs.ErrNotExist)
	if pathErr != nil && !missing {
		s.tell(pathErr)
		return nil
	}
	s.begun = true
	if s.r.cfg.Lookback > 0 {
		s.cutoff = time.Now().Add(-s.r.cfg.Lookback)
	}
	head := path.head()
	if !s.cutoff.IsZero() {
		all = slices.DeleteFunc(all, func(c sibling) bool { return c.packing != foreign && !c.writtenBefore(s.cutoff) })
	}
	s.noteOlder(all, path.stat, head)
	if missing || s.r.cfg.Lookback > 0 {
		closeFile(path.f)
		return nil // next opens the first file, rotated or not
	}
	t := s.newTail(path)
	t.head = head
	offset, err := lastLine(t.f, t.stat.size, s.r.cfg.MaxLine)
	if err != nil {
		s.begun = false
		closeFile(path.f)
		s.tell(err)
		return nil
	}
	t.offset = offset
	s.open(t)
	return nil
}

// noteOlder takes down that the rotated files before one, which begins with head,
// are dealt with: all of them, unless it was rotated itself since it was opened.
func (s *follower) noteOlder(all []sibling, than fileStat, head []byte) {
	for _, c := range all {
		if c.stat.sameFile(than) {
			return // what follows is newer
		}
		s.note(c, c.stat.size, head)
	}
}

// noteKnown takes down which rotated files an earlier reader has read. Those that
// are gone may be there in compressed form.
func (s *follower) noteKnown(all []sibling, read []knownFile) {
	for _, k := range read {
		if i := slices.IndexFunc(all, k.isIn); i >= 0 {
			s.note(all[i], k.Size, nil)
			continue
		}
		st := fileStat{ino: k.Ino, links: 1, modified: unix.NsecToTimespec(k.Time)}
		s.known.add(known{stat: st, read: k.Size, sum: k.Sum})
	}
}
