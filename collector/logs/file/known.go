package file

import (
	"bytes"
	"slices"
)

// known is a rotated file that was read up to the offset read. For a compressed file, all values
// are those of the compressed bytes.
type known struct {
	stat fileStat
	head []byte // its first bytes; empty if only the sum is known
	read int64
	sum  string // of its first headSize bytes, or of as many as were read
	// packed is set once the compressed version of the file was seen.
	packed bool
}

// newKnown returns the record of a file that begins with head and was read up to read.
func newKnown(st fileStat, head []byte, read int64) known {
	return known{stat: st, head: head, read: read, sum: checksum(head[:min(int64(len(head)), read)])}
}

// knownList is bounded: the oldest entry is dropped first.
type knownList []known

// maxKnown is larger than what siblings returns, so that no existing file is forgotten.
const maxKnown = 4 * maxSiblings

func (l *knownList) add(k known) {
	*l = slices.DeleteFunc(*l, func(o known) bool { return o.stat.sameFile(k.stat) && !o.replacedBy(k) })
	if len(*l) >= maxKnown {
		*l = slices.Delete(*l, 0, 1)
	}
	*l = append(*l, k)
}

// replacedBy reports whether by is another file that has reused k's inode. k may still appear in
// compressed form.
func (k known) replacedBy(by known) bool {
	if len(k.head) == 0 {
		return k.read > 0 && k.sum != by.sum
	}
	return k.read > 0 && !bytes.HasPrefix(by.head, k.head)
}

// positions returns the newest entries, to be saved in a position.
func (l knownList) positions() (all []knownFile) {
	for _, k := range l {
		if !k.packed {
			all = append(all, knownFile{Ino: k.stat.ino, Size: k.read, Sum: k.sum, Time: k.stat.modified.Nano()})
		}
	}
	return all[max(0, len(all)-maxSiblings):]
}

// find returns the entry for a file with this state and these first bytes.
func (l knownList) find(st fileStat, head []byte) (known, bool) {
	for _, k := range l {
		// Inode numbers are reused, so the content has to be the same as well.
		if k.stat.sameFile(st) && st.size >= k.read && bytes.HasPrefix(head, k.head) {
			return k, true
		}
	}
	return known{}, false
}

// copied reports whether a file is a copy of a known one, made by somebody. If there are less than
// headSize bytes it returns false, because two different files may begin alike.
func (l knownList) copied(st fileStat, head []byte) bool {
	for _, k := range l {
		if len(head) == headSize && st.size <= k.read && bytes.Equal(head, k.head) {
			return true
		}
	}
	return false
}

// origin returns the index of the file that c was compressed from, or -1 if it is not known. c
// holds size bytes, modulo 2^32, and begins with head. A foreign one is matched by its time only.
// Each file is the origin of only one other, so files with the same content are told apart by
// their number. A file with exactly these bytes is preferred.
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

// isIn reports whether a file that begins with head begins with k's first bytes.
func (k known) isIn(head []byte) bool {
	n := min(k.read, headSize)
	return int64(len(head)) >= n && checksum(head[:n]) == k.sum
}

// outgrew reports whether k is a deleted file that was still written, and read, after it had been
// compressed to a file with size bytes that begins with head.
func (k known) outgrew(head []byte, size uint32) bool {
	return k.stat.links == 0 && int64(size) < k.read && len(head) > 0 && bytes.HasPrefix(k.head, head)
}
