package file

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

// headSize is how much of a file's beginning is compared to tell files apart: syslog lines differ
// within the first one.
const headSize = 1 << 10

// tail is an open file, read up to some offset.
type tail struct {
	f      *os.File
	packed *packed  // for a compressed file; offsets then refer to the decompressed content
	name   string   // where it was when it was at its path
	stat   fileStat // as of the last look
	head   []byte   // its first bytes, at most headSize

	offset int64 // of the first byte that was not handed over
	lines  *splitter
	grown  time.Time // when it last grew, for an unfinished last line
}

// errRewritten is returned when the file no longer holds what was read from it.
var errRewritten = errors.New("the file was truncated or rewritten")

// readAt returns the offset of the next bytes to read.
func (t *tail) readAt() int64 { return t.offset + int64(t.lines.rest()) }

// look checks that the file still holds what was read from it.
func (t *tail) look() error {
	if t.packed == nil {
		return t.check(nil)
	}
	// A compressed file is written only once.
	st, err := stat(t.f)
	if err == nil {
		t.stat = st
	}
	return err
}

// unpackHead reads the first decompressed bytes, and reports whether it succeeded.
func (t *tail) unpackHead() bool {
	head, err := t.packed.head()
	t.head = head
	return err == nil
}

// check checks that the file still holds what was read from it, followed by more.
func (t *tail) check(more []byte) error {
	st, err := stat(t.f)
	if err != nil {
		return err
	}
	t.stat = st
	at := t.readAt()
	if st.size < at+int64(len(more)) {
		return errRewritten
	}
	if len(t.head) == 0 && st.size == 0 {
		return nil
	}
	head, err := readHead(t.f)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(head, t.head) {
		return errRewritten
	}
	if at < int64(len(head)) {
		if both := head[at:]; !bytes.HasPrefix(more, both[:min(len(both), len(more))]) {
			return errRewritten
		}
	}
	t.head = head
	return nil
}

// fill reads a chunk. It returns io.EOF at the end of the file, and errRewritten if the chunk may
// not follow what was read before, because the file may have been truncated and written since the
// last look.
func (t *tail) fill(now time.Time) error {
	room := t.lines.room()
	var n int
	var err error
	if t.packed != nil {
		n, err = t.packed.readAt(room, t.readAt())
	} else {
		n, err = t.f.ReadAt(room, t.readAt())
	}
	if n <= 0 {
		return err
	}
	if t.packed == nil {
		if err := t.check(room[:n]); err != nil {
			return err
		}
	}
	t.lines.filled(n)
	t.grown = now
	return nil
}

// readHead reads the first bytes of a file, at most headSize.
func readHead(f *os.File) ([]byte, error) {
	head := make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}

// lastLine returns where the last, unfinished line of a file of this size begins, or size if that
// line is longer than limit.
func lastLine(f *os.File, size int64, limit int) (int64, error) {
	from := max(0, size-int64(limit))
	b := make([]byte, size-from)
	n, err := f.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
		return from + int64(i) + 1, nil
	}
	if from == 0 {
		return 0, nil
	}
	return size, nil
}
