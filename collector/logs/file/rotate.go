package file

import (
	"bytes"
	"slices"
)

// known is a rotated file that is dealt with, up to read.
type known struct {
	stat fileStat
	head []byte
	read int64
}

// knownList is bounded: what was added first is forgotten first.
type knownList []known

// maxKnown is more than siblings returns, so that a file which is there is
// remembered.
const maxKnown = 4 * maxSiblings

func (l *knownList) add(k known) {
	*l = slices.DeleteFunc(*l, func(o known) bool { return o.stat.sameFile(k.stat) })
	if len(*l) >= maxKnown {
		*l = slices.Delete(*l, 0, 1)
	}
	*l = append(*l, k)
}

// sizes returns inode and size of the newest ones.
func (l knownList) sizes() [][2]int64 {
	newest := l[max(0, len(l)-maxSiblings):]
	sizes := make([][2]int64, len(newest))
	for i, k := range newest {
		sizes[i] = [2]int64{int64(k.stat.ino), k.read}
	}
	return sizes
}

// find returns what is known of a file with this state and beginning.
func (l knownList) find(st fileStat, head []byte) (known, bool) {
	for _, k := range l {
		// The number of an inode is used again, so the content has to be the same.
		if k.stat.sameFile(st) && st.size >= k.read && bytes.HasPrefix(head, k.head) {
			return k, true
		}
	}
	return known{}, false
}

// copied tells whether a file is a copy of a known one, as somebody may make. Of
// less than headSize bytes that can't be told: two files may well be the same.
func (l knownList) copied(st fileStat, head []byte) bool {
	for _, k := range l {
		if len(head) == headSize && st.size <= k.read && bytes.Equal(head, k.head) {
			return true
		}
	}
	return false
}

// between returns the first rotated file of the current name that was not read,
// or that was written after it was; nil: there is none. What is at the name
// itself counts where the path, whose file is given if there is one, leads
// elsewhere by now.
func (s *follower) between(path found) *tail {
	head := path.head()
	present := siblings(s.name)
	if st, err := statAt(s.name); err == nil {
		present = append(present, sibling{name: s.name, stat: st})
	}
	for _, c := range present {
		if c.stat.sameFile(path.stat) || s.cur != nil && c.stat.sameFile(s.cur.stat) {
			continue
		}
		if t := s.unread(c, head); t != nil {
			return t
		}
	}
	return nil
}

// unread opens a rotated file where it was left; nil: all of it was read, or it
// is a copy of the file that begins with head, which will be read itself, or on
// in the copy should it be truncated.
func (s *follower) unread(c sibling, head []byte) *tail {
	f, ok := c.open()
	if !ok {
		return nil // it is being renamed: there will be another look
	}
	own, err := readHead(f)
	k, isKnown := s.known.find(c.stat, own)
	switch {
	case err != nil, len(own) == 0, isKnown && c.stat.size == k.read:
	case !isKnown && sameStart(own, head):
	case !isKnown && s.known.copied(c.stat, own):
		s.known.add(known{stat: c.stat, head: own, read: c.stat.size})
	default:
		return &tail{f: f, name: s.name, stat: c.stat, head: own, offset: k.read, lines: newSplitter(s.r.cfg.MaxLine)}
	}
	closeFile(f)
	return nil
}

// overtaken tells whether there is a rotated file to be read behind the current
// one, so that this one's writer is done with it.
func (s *follower) overtaken(path fileStat) bool {
	t := s.between(found{stat: path})
	if t != nil {
		closeFile(t.f)
	}
	return t != nil
}

// moved tells whether what came into the current file was copied and truncated
// before any of it was read, so that it has to be read from the copy first: a
// rotated file older than the current one that was not read.
func (s *follower) moved() bool {
	for _, c := range siblings(s.name) {
		if c.stat.sameFile(s.cur.stat) {
			return false // what follows is newer
		}
		if t := s.unread(c, s.cur.head); t != nil {
			closeFile(t.f)
			return true
		}
	}
	return false
}

// copyOf returns a rotated file that begins with what was read of t and has at
// least as much, where t was to be read on; nil: there is none.
func (s *follower) copyOf(t *tail) *tail {
	if len(t.head) == 0 {
		return nil
	}
	for _, c := range siblings(t.name) {
		if c.stat.sameFile(t.stat) || c.stat.size < t.readAt() {
			continue
		}
		f, ok := c.open()
		if !ok {
			continue
		}
		head, err := readHead(f)
		if _, isKnown := s.known.find(c.stat, head); err != nil || isKnown || !bytes.HasPrefix(head, t.head) {
			closeFile(f)
			continue
		}
		lines := newSplitter(s.r.cfg.MaxLine)
		lines.cutting, lines.cut = t.lines.cutting, t.lines.cut
		return &tail{f: f, name: t.name, stat: c.stat, head: head, offset: t.offset, lines: lines, grown: t.grown}
	}
	return nil
}

// note takes down that a rotated file is dealt with, up to read, unless it is a
// copy of the file that begins with head: that one may be about to be truncated,
// and then is to be read on in the copy.
func (s *follower) note(c sibling, read int64, head []byte) {
	f, ok := c.open()
	if !ok {
		return
	}
	defer f.Close()
	if own, err := readHead(f); err == nil && len(own) > 0 && !sameStart(own, head) {
		s.known.add(known{stat: c.stat, head: own, read: read})
	}
}

// sameStart tells whether one of them begins with the other.
func sameStart(a, b []byte) bool {
	n := min(len(a), len(b))
	return n > 0 && bytes.Equal(a[:n], b[:n])
}
