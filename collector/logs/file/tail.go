package file

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

// headSize is how much of files is compared to tell them apart: syslog lines differ within the first.
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

// fill reads a chunk. It returns io.EOF at the end, and errRewritten if the chunk may not follow what was
// read before, because the file was truncated and written since the last look.
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

// lastLine returns where the unfinished last line begins, or size if that line is longer than limit.
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

// splitter splits what is read from a file into lines, in a buffer of fixed size. Bytes go in with
// room and filled, and lines come out of next. It belongs to one goroutine.
type splitter struct {
	buf        []byte
	start, end int    // the part of buf that next has not returned yet
	limit      int    // maximum length of a line
	cutting    bool   // the beginning of the current line was returned
	cut        uint64 // bytes of it that were dropped
}

// chunk is how many bytes are read at a time.
const chunk = 64 << 10

func newSplitter(limit int) *splitter {
	return &splitter{buf: make([]byte, limit+chunk), limit: limit}
}

// piece is the kind of what next returns.
type piece int

const (
	// none: more bytes are needed.
	none piece = iota
	// whole is a line without its line end.
	whole
	// beginning is the part of a too long line that may be handed over.
	beginning
	// ending is the end of a too long line.
	ending
	// dropped are bytes that belong to no line, or to a too long one.
	dropped
)

// room returns where to put the next bytes. It invalidates lines returned by next.
func (s *splitter) room() []byte {
	if s.start > 0 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	return s.buf[s.end:]
}

// filled records that n bytes were put into room.
func (s *splitter) filled(n int) { s.end += n }

// rest returns how many bytes wait for the end of their line.
func (s *splitter) rest() int { return s.end - s.start }

// reset forgets everything.
func (s *splitter) reset() { s.start, s.end, s.cutting, s.cut = 0, 0, false, 0 }

// next returns the next piece, how many bytes of the file it takes, and the line if it is one. With final,
// the rest at the end of a file counts as a line. After ending, cut is how many bytes were dropped.
func (s *splitter) next(final bool) (line []byte, size int, p piece) {
	b := s.buf[s.start:s.end]
	if len(b) == 0 {
		return nil, 0, none
	}
	if s.cutting {
		return s.skipLine(b)
	}
	if b[0] == 0 {
		// A crash leaves zeros at the end of a file, and truncating one under a
		// writer that does not append leaves a hole. No line begins with them.
		n := len(b) - len(bytes.TrimLeft(b, "\x00"))
		s.start += n
		return nil, n, dropped
	}
	end := bytes.IndexByte(b, '\n')
	switch {
	case end >= 0 && end <= s.limit:
		s.start += end + 1
		return bytes.TrimSuffix(b[:end], []byte{'\r'}), end + 1, whole
	case len(b) > s.limit:
		s.cutting, s.cut = true, 0
		s.start += s.limit
		return b[:s.limit], s.limit, beginning
	case final:
		s.start = s.end
		return b, len(b), whole
	default:
		return nil, 0, none
	}
}

// skipLine skips the rest of a too long line.
func (s *splitter) skipLine(b []byte) (line []byte, size int, p piece) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		s.start = s.end
		s.cut += uint64(len(b))
		return nil, len(b), dropped
	}
	s.start += end + 1
	s.cut += uint64(end)
	s.cutting = false
	return nil, end + 1, ending
}
