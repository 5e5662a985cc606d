package file

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// begin decides where to begin, and opens the first file. begun stays false if that can't be
// decided yet because a file can't be read.
func (s *follower) begin() error {
	path, err := s.r.tree.open(s.r.cfg.Path)
	s.name = path.name
	if err != nil {
		s.name = s.r.tree.below(s.r.cfg.Path)
	}
	s.known = nil
	if s.start != "" {
		pos, ok := parsePosition(s.start)
		if k := s.r.dec.kernel; k != nil {
			k.stamp = time.Duration(pos.Stamp) * time.Microsecond
			k.passed = k.stamp
		}
		if ok {
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

// beginAt continues where an earlier reader stopped.
func (s *follower) beginAt(pos position, path found, pathErr error) error {
	t, all := s.find(pos, path)
	if t == nil && !pos.Fresh {
		if pathErr != nil {
			s.report(pathErr) // the rest may be in the file at the path
			return nil
		}
		// Rotated away and deleted, or compressed in a way that can't be read.
		if err := s.lose(logs.Rotated, 0, 0); err != nil {
			closeFile(path.f)
			return err
		}
	}
	s.start, s.begun = "", true
	if pos.Offset == 0 {
		// If nothing was handed over, the content may be in a copy by now; next opens the first file.
		s.noteKnown(all, pos.Known)
		closeFile(path.f)
		if t != nil && t.f != path.f {
			closeFile(t.f)
		}
		return nil
	}
	if t == nil {
		s.noteOlder(all, path.f, path.head())
		closeFile(path.f)
		return nil
	}
	s.noteOlder(all, t.f, t.head)
	if t.f != path.f {
		closeFile(path.f)
	}
	t.lines.cutting, t.lines.cut = pos.Cutting, pos.Cut
	s.open(t)
	return nil
}

// find returns the file that the position is in: the very same file, at the path or rotated, or
// else one with the same content, because a copy has another inode, and a boot changes the device
// number. It also returns the rotated files that were present at that moment.
func (s *follower) find(pos position, path found) (same *tail, all []listed) {
	look := func(f *os.File, st fileStat, p packing) (exact bool) {
		t := s.newTail(f, st, p)
		if t.offset = pos.Offset; !pos.isIn(t) {
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
	for range listTries {
		all = listHeads(s.name)
		if path.f != nil {
			if look(path.f, path.stat, plain) {
				return same, all
			}
			all = listHeads(s.name) // it may have been copied and truncated since they were listed
		}
		there := true
		for _, c := range all {
			f, ok := c.open()
			if !ok {
				there = false // it was renamed or compressed
				continue
			}
			if look(f, c.stat, c.packing) {
				return same, all
			}
			if same == nil || same.f != f {
				closeFile(f)
			}
		}
		if same != nil || there {
			break
		}
	}
	return same, all
}

// beginNow begins without a position.
func (s *follower) beginNow(path found, pathErr error) error {
	all, missing := listHeads(s.name), errors.Is(pathErr, fs.ErrNotExist)
	if pathErr != nil && !missing {
		s.report(pathErr)
		return nil
	}
	s.begun = true
	if s.r.cfg.Lookback > 0 {
		s.cutoff = time.Now().Add(-s.r.cfg.Lookback)
	}
	head := path.head()
	if !s.cutoff.IsZero() {
		all = slices.DeleteFunc(all, func(c listed) bool { return c.packing != foreign && c.stat.modified >= s.cutoff.UnixNano() })
	}
	s.noteOlder(all, path.f, head)
	if missing || s.r.cfg.Lookback > 0 {
		closeFile(path.f)
		return nil // next opens the first file, rotated or not
	}
	t := s.newTail(path.f, path.stat, plain)
	t.head = head
	var err error
	if t.offset, err = lastLine(t.f, t.stat.size, s.r.maxLine); err != nil {
		s.begun = false
		closeFile(path.f)
		s.report(err)
		return nil
	}
	s.open(t)
	return nil
}

// noteOlder records as done all rotated files that are older than the given one, which begins with
// head (if that one was rotated after it was opened, newer files are not recorded). It does not
// record copies of the given file: that file may be about to be truncated, and its rest is then read
// from the copy.
func (s *follower) noteOlder(all []listed, than *os.File, head []byte) {
	st := fileStat{links: 1}
	if than != nil {
		if now, err := stat(than); err == nil {
			st = now
		}
	}
	for _, c := range all {
		same := sameStart(c.unpackedHead(), head)
		switch {
		case c.stat.sameFile(st), st.links == 0 && c.packing == gzipped && same,
			st.links == 0 && c.packing == foreign && c.stat.modified == st.modified:
			return // what follows is newer
		case len(c.head) > 0 && !same:
			s.known.add(newKnown(c.stat, c.head, c.stat.size))
		}
	}
}

// noteKnown records which rotated files were read. Those that are gone may exist in compressed form.
func (s *follower) noteKnown(all []listed, read []knownFile) {
	for _, k := range read {
		if i := slices.IndexFunc(all, k.isIn); i >= 0 {
			s.known.add(newKnown(all[i].stat, all[i].head, k.Size))
			continue
		}
		st := fileStat{ino: k.Ino, links: 1, modified: k.Time}
		s.known.add(known{stat: st, read: k.Size, sum: k.Sum})
	}
}
