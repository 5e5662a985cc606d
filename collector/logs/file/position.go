package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/kernosis/kernosis/collector/logs"
)

// ErrPosition is returned for what is not a Position of this package.
var ErrPosition = errors.New("not a position in a file")

// position is up to where a file was handed over.
type position struct {
	// Fresh says that there was no file: all of one that appears is new.
	Fresh bool `json:"fresh,omitempty"`
	// Known are the rotated files that were read, where Fresh or at the beginning
	// of a file: any other one is new. Further on, those are new that were written
	// later than the file the position is in.
	Known []knownFile `json:"known,omitempty"`

	Dev    uint64 `json:"dev,omitempty"`
	Ino    uint64 `json:"ino,omitempty"`
	Offset int64  `json:"offset"`
	// Lines is the number of the last line that was handed over.
	Lines uint64 `json:"lines,omitempty"`
	// Stamp is the time stamp of the kernel's last line before Offset, in µs. A line behind it with
	// the same stamp belongs to the same record.
	Stamp int64 `json:"stamp,omitempty"`
	// Head bytes at the beginning have the checksum Sum: numbers of inodes are
	// used again, and those of devices change with a boot.
	Head int    `json:"head,omitempty"`
	Sum  string `json:"sum,omitempty"`
	// Cutting says that Offset is within a line that is too long, of which Cut
	// bytes were dropped.
	Cutting bool   `json:"cutting,omitempty"`
	Cut     uint64 `json:"cut,omitempty"`
}

// knownFile is a rotated file that was read, up to Size.
type knownFile struct {
	Ino  uint64 `json:"ino"`
	Size int64  `json:"size"`
	// Sum is of its first bytes, headSize or Size of them.
	Sum string `json:"sum,omitempty"`
	// Time is when it was written last, in nanoseconds since 1970.
	Time int64 `json:"time,omitempty"`
}

// isIn reports whether c is that file, which may have grown.
func (k knownFile) isIn(c listed) bool {
	return k.Ino == c.stat.ino && 0 <= k.Size && k.Size <= c.stat.size && checksum(c.head[:min(int64(len(c.head)), k.Size)]) == k.Sum
}

func (p position) text() logs.Position {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // numbers and a text of digits: it can't be
	}
	return logs.Position(b)
}

func parsePosition(text logs.Position) (position, error) {
	var p position
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return position{}, fmt.Errorf("%.100q: %w", text, ErrPosition)
	}
	if len(p.Known) > maxSiblings || p.Offset < 0 || p.Head < 0 || p.Head > headSize || int64(p.Head) > p.Offset || p.Fresh != (p.Ino == 0) {
		return position{}, fmt.Errorf("%.100q: %w", text, ErrPosition)
	}
	return p, nil
}

// checksum is FNV-1a: it has to distinguish logs, not to resist anybody.
func checksum(b []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(b) // it never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

// isIn reports whether t is or holds what the position is in, and sets its head.
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
		// Nothing was handed over: only the file itself will do.
		return t.stat.ino == p.Ino
	}
	return len(t.head) >= p.Head && checksum(t.head[:p.Head]) == p.Sum
}
