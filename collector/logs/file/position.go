package file

import (
	"encoding/json"
	"hash/fnv"
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
	// Sum is the checksum of the first Head bytes: inode numbers are reused, and device numbers
	// change with a boot.
	Head int    `json:"head,omitempty"`
	Sum  string `json:"sum,omitempty"`
	// Cutting means that Offset is within a line that is too long, of which Cut bytes were
	// dropped.
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
	b, err := json.Marshal(p)
	if err != nil {
		return "" // can't happen: p is numbers and strings of digits
	}
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
