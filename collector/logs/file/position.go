package file

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/kernosis/kernosis/collector/logs"
)

// position is how far a file was handed over.
type position struct {
	// Fresh means that there was no file: one that appears is new as a whole.
	Fresh bool `json:"fresh,omitempty"`
	// Known are the rotated files that were read. It is set if Fresh is, or at the beginning of a
	// file: all other rotated files are new. Further on in a file, rotated files are new if they
	// were written later than the file the position is in.
	Known []knownFile `json:"known,omitempty"`

	Dev    uint64 `json:"dev,omitempty"`
	Ino    uint64 `json:"ino,omitempty"`
	Offset int64  `json:"offset"`
	// Lines is the number of the last line that was handed over.
	Lines uint64 `json:"lines,omitempty"`
	// Stamp is the time stamp of the kernel's last line before Offset, in µs. A line behind it
	// with the same stamp belongs to the same record.
	Stamp int64 `json:"stamp,omitempty"`
	// Sum is the checksum of the first Head bytes: inodes are reused, a boot changes device numbers.
	Head int    `json:"head,omitempty"`
	Sum  string `json:"sum,omitempty"`
	// Cutting: Offset is within a line that is too long, of which Cut bytes were dropped.
	Cutting bool   `json:"cutting,omitempty"`
	Cut     uint64 `json:"cut,omitempty"`
}

// knownFile is a rotated file that was read, up to Size.
type knownFile struct {
	Ino  uint64 `json:"ino"`
	Size int64  `json:"size"`
	// Sum is the checksum of its first headSize bytes, or Size if that is less.
	Sum string `json:"sum,omitempty"`
	// Time is its modification time, in nanoseconds since 1970.
	Time int64 `json:"time,omitempty"`
}

// isIn reports whether c is this file, possibly grown.
func (k knownFile) isIn(c listed) bool {
	return k.Ino == c.stat.ino && 0 <= k.Size && k.Size <= c.stat.size && checksum(c.head[:min(int64(len(c.head)), k.Size)]) == k.Sum
}

func (p position) text() logs.Position {
	b, _ := json.Marshal(p) // it can't fail: p is numbers and strings of digits
	return logs.Position(b)
}

// parsePosition returns false for text that is not a Position of this package.
func parsePosition(text logs.Position) (p position, ok bool) {
	if json.Unmarshal([]byte(text), &p) != nil || len(p.Known) > maxSiblings || p.Offset < 0 ||
		p.Head < 0 || p.Head > headSize || int64(p.Head) > p.Offset || p.Fresh != (p.Ino == 0) {
		return position{}, false
	}
	return p, true
}

// checksum returns the FNV-1a hash: it distinguishes logs but need not resist attackers.
func checksum(b []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(b) // it never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

// isIn reports whether t is, or holds, the file that the position is in, and sets its head.
func (p position) isIn(t *tail) bool {
	if p.Fresh {
		return false
	}
	if t.packed == nil {
		head, err := readHead(t.f)
		if err != nil || t.stat.size < p.Offset {
			return false
		}
		t.head = head
	} else if !t.unpackHead() || t.packed.unpackedSize(t.stat.size) < uint32(p.Offset) {
		return false
	}
	if p.Head == 0 {
		// Nothing was handed over, so there is no checksum: only the inode identifies the file.
		return t.stat.ino == p.Ino
	}
	return len(t.head) >= p.Head && checksum(t.head[:p.Head]) == p.Sum
}

// known is a rotated file, read up to read. A compressed file's values are those of its compressed bytes.
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

// maxKnown is larger than the number of files that siblings returns, so that no existing file is
// forgotten.
const maxKnown = 4 * maxSiblings

func (l *knownList) add(k known) {
	*l = slices.DeleteFunc(*l, func(o known) bool { return o.stat.sameFile(k.stat) && !o.replacedBy(k) })
	if len(*l) >= maxKnown {
		*l = slices.Delete(*l, 0, 1)
	}
	*l = append(*l, k)
}

// replacedBy reports whether by has reused k's inode. k may still appear in compressed form.
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
			all = append(all, knownFile{Ino: k.stat.ino, Size: k.read, Sum: k.sum, Time: k.stat.modified})
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
// holds size bytes, modulo 2^32, and begins with head. A file of another compression is matched only by
// its time. Each file is the origin of only one other file, so that files with the same content are
// counted separately. A file with exactly these bytes is preferred.
func (l knownList) origin(c sibling, head []byte, size uint32) int {
	best := -1
	for i, k := range l {
		switch {
		case k.packed || k.read == 0:
		case c.packing == foreign:
			if k.stat.modified == c.stat.modified || k.stat.links == 0 && c.stat.modified < k.stat.modified {
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
