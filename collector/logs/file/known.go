package file

import (
	"bytes"
	"slices"
)

// known is a rotated file that is dealt with, up to read. Of a compressed one
// these are its own bytes, not those that it holds.
type known struct {
	stat fileStat
	head []byte // its first bytes; none where only the sum is known
	read int64
	sum  string // of its first headSize bytes, or of as many as were read
	// packed says that the compressed file that was made of it was seen.
	packed bool
}

// newKnown returns what is known of a file that begins with head.
func newKnown(st fileStat, head []byte, read int64) known {
	return known{stat: st, head: head, read: read, sum: checksum(head[:min(int64(len(head)), read)])}
}

// knownList is bounded: what was added first is forgotten first.
type knownList []known

// maxKnown is more than siblings returns, so that a file which is there is
// remembered.
const maxKnown = 4 * maxSiblings

func (l *knownList) add(k known) {
	*l = slices.DeleteFunc(*l, func(o known) bool { return o.stat.sameFile(k.stat) && !o.replacedBy(k) })
	if len(*l) >= maxKnown {
		*l = slices.Delete(*l, 0, 1)
	}
	*l = append(*l, k)
}

// replacedBy reports whether by, which has the same inode, is another file: this one may
// still be about to come in compressed form.
func (k known) replacedBy(by known) bool {
	if len(k.head) == 0 {
		return k.read > 0 && k.sum != by.sum
	}
	return k.read > 0 && !bytes.HasPrefix(by.head, k.head)
}

// positions returns the newest ones for a position.
func (l knownList) positions() (all []knownFile) {
	for _, k := range l {
		if !k.packed {
			all = append(all, knownFile{Ino: k.stat.ino, Size: k.read, Sum: k.sum, Time: k.stat.modified.Nano()})
		}
	}
	return all[max(0, len(all)-maxSiblings):]
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

// copied reports whether a file is a copy of a known one, as somebody may make. Of
// less than headSize bytes that is not known: two files may well be the same.
func (l knownList) copied(st fileStat, head []byte) bool {
	for _, k := range l {
		if len(head) == headSize && st.size <= k.read && bytes.Equal(head, k.head) {
			return true
		}
	}
	return false
}

// origin returns which file c was made of, which holds size bytes, modulo 2^32,
// and begins with head; -1: none that is known. A foreign one is known by its
// time alone. Each file is the origin of one other, so that those with the same
// content are distinguished by their number. The one with just these bytes goes
// before others.
func (l knownList) origin(c sibling, head []byte, size uint32) int {
	best := -1
	for i, k := range l {
		switch {
		case k.packed || k.read == 0:
		case c.packing == foreign:
			if k.stat.modified == c.stat.modified || k.stat.links == 0 && c.stat.before(k.stat) {
				return i
			}
		case k.isIn(head) && uint32(k.read) == size:
			return i
		case (k.isIn(head) || k.outgrew(head, size)) && (best < 0 || l[best].read < k.read):
			best = i
		}
	}
	return best
}

// isIn reports whether k begins as a file that begins with head does.
func (k known) isIn(head []byte) bool {
	n := min(k.read, headSize)
	return int64(len(head)) >= n && checksum(head[:n]) == k.sum
}

// outgrew reports whether k is a deleted file that was written, and read, when one
// with size bytes, which begins with head, was made of it already.
func (k known) outgrew(head []byte, size uint32) bool {
	return k.stat.links == 0 && int64(size) < k.read && len(head) > 0 && bytes.HasPrefix(k.head, head)
}
