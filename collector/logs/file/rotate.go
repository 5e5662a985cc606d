package file

import (
	"bytes"
	"os"
	"slices"
)

// between returns the first rotated file of the current name that was not read completely, or nil.
// It includes the file at the name itself if the path now leads to another file. path is the file at
// the path, if there is one.
func (s *follower) between(path found) *tail {
	return s.firstUnread(path.head(), func() []sibling {
		var older []sibling
		for _, c := range siblings(s.name) {
			if c.stat.sameFile(path.stat) {
				return older // it was rotated since: what follows is newer
			}
			if s.cur == nil || !c.stat.sameFile(s.cur.stat) {
				older = append(older, c)
			}
		}
		st, err := statAt(s.name)
		if err == nil && !st.sameFile(path.stat) && (s.cur == nil || !st.sameFile(s.cur.stat)) {
			older = append(older, sibling{name: s.name, plain: s.name, stat: st})
		}
		return older
	})
}

// firstUnread returns the first listed file that must be read before the file that begins with head.
// It skips files that can't be opened.
func (s *follower) firstUnread(head []byte, list func() []sibling) *tail {
	for try := range listTries {
		all := true
		for _, c := range list() {
			t, ok := s.unread(c, head)
			all = all && ok
			if t != nil && (all || try == listTries-1) {
				return t
			}
			if t != nil {
				closeFile(t.f)
				break
			}
		}
		if all {
			return nil
		}
	}
	return nil // the next change of the folder triggers another try
}

// unread opens a rotated file where reading stopped. It returns nil if all of it was read, or if it
// is a copy of the file that begins with head: that file itself is read, and the copy only if the
// file is truncated. ok is false if the file is gone.
func (s *follower) unread(c sibling, head []byte) (t *tail, ok bool) {
	f, ok := c.open()
	if !ok {
		return nil, false
	}
	own, err := readHead(f)
	k, isKnown := s.known.find(c.stat, own)
	switch {
	case err != nil, len(own) == 0, isKnown && (c.stat.size == k.read || c.packing != plain):
	case c.packing != plain:
		if t := s.unreadPacked(c, f, own); t != nil {
			return t, true
		}
	case !isKnown && sameStart(own, head):
	case !isKnown && s.known.copied(c.stat, own):
		s.known.add(newKnown(c.stat, own, c.stat.size))
	default:
		t = s.newTail(f, c.stat, plain)
		t.head, t.offset = own, k.read
		return t, true
	}
	closeFile(f)
	return nil, true
}

// unreadPacked is unread for a compressed file that is not known. A compressed copy appears only
// after the file at the path was truncated, so it is not a copy of the file's current content.
func (s *follower) unreadPacked(c sibling, f *os.File, own []byte) *tail {
	t := s.newTail(f, c.stat, c.packing)
	t.unpackHead() // an error comes up again when the file is read
	if s.ofCurrent(t, c.packing) {
		return nil
	}
	size := t.packed.unpackedSize(c.stat.size)
	i := s.known.origin(c, t.head, size)
	if i < 0 {
		return t
	}
	k := s.known[i]
	if c.packing == gzipped && uint32(k.read) != size && !k.outgrew(t.head, size) {
		t.offset = k.read // it was written again after it was read
		return t
	}
	s.known[i].packed = true
	s.known.add(newKnown(c.stat, own, c.stat.size))
	return nil
}

// ofCurrent reports whether a compressed file was made from the current one, which then is deleted.
func (s *follower) ofCurrent(t *tail, p packing) bool {
	if s.cur == nil || s.cur.packed != nil {
		return false
	}
	st, err := stat(s.cur.f)
	if err != nil || st.links > 0 {
		return false
	}
	if p == foreign {
		return st.modified == t.stat.modified
	}
	return sameStart(t.head, s.cur.head)
}

// done records that t was read to its end.
func (s *follower) done(t *tail) {
	if t.packed == nil {
		if st, err := stat(t.f); err == nil {
			t.stat.links = st.links
		}
		s.known.add(newKnown(t.stat, t.head, t.offset))
		return
	}
	own, err := readHead(t.f)
	if err != nil {
		own = nil // only the inode identifies it then
	}
	if i := s.known.origin(sibling{stat: t.stat}, t.head, t.packed.unpackedSize(t.stat.size)); i >= 0 {
		s.known[i].packed = true
	}
	s.known.add(newKnown(t.stat, own, t.stat.size))
}

// overtaken reports whether there is a newer rotated file: the current one's writer is done with it.
func (s *follower) overtaken(path fileStat) bool {
	return s.between(found{stat: path}).drop()
}

// moved reports whether the current file was copied and truncated before any of it was read. Then an
// older rotated file is unread and must be read first.
func (s *follower) moved() bool {
	return s.firstUnread(s.cur.head, func() []sibling {
		all := siblings(s.name)
		if i := slices.IndexFunc(all, func(c sibling) bool { return c.stat.sameFile(s.cur.stat) }); i >= 0 {
			return all[:i] // what follows is newer
		}
		return all
	}).drop()
}

// drop closes a file that is not needed now. It returns false if t is nil.
func (t *tail) drop() bool {
	if t == nil {
		return false
	}
	closeFile(t.f)
	return true
}

// copyOf returns a rotated file that begins with what was read from t and has at least as many
// bytes, positioned where t was; nil if there is none.
func (s *follower) copyOf(t *tail) *tail {
	if len(t.head) == 0 {
		return nil
	}
	for range listTries {
		all := true
		for _, c := range siblings(t.name) {
			if c.stat.sameFile(t.stat) {
				continue
			}
			copied, ok := s.openCopy(c, t)
			if copied != nil {
				return copied
			}
			all = all && ok
		}
		if all {
			break
		}
	}
	return nil
}

// openCopy opens c if it is a copy of t. ok is false if the file is gone.
func (s *follower) openCopy(c sibling, t *tail) (copied *tail, ok bool) {
	f, ok := c.open()
	if !ok {
		return nil, false
	}
	own, err := readHead(f)
	copied = s.newTail(f, c.stat, c.packing)
	copied.name, copied.head, copied.offset, copied.grown = t.name, own, t.offset, t.grown
	copied.lines.cutting, copied.lines.cut = t.lines.cutting, t.lines.cut
	size := c.stat.size
	if c.packing != plain {
		copied.unpackHead()
		size = int64(copied.packed.unpackedSize(size))
	}
	_, isKnown := s.known.find(c.stat, own)
	if err != nil || isKnown || size < t.readAt() || !bytes.HasPrefix(copied.head, t.head) {
		closeFile(f)
		return nil, true
	}
	return copied, true
}

// sameStart reports whether one of them is a prefix of the other.
func sameStart(a, b []byte) bool {
	n := min(len(a), len(b))
	return n > 0 && bytes.Equal(a[:n], b[:n])
}
