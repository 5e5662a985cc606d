package file

import "bytes"

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

// next returns the next piece, how many bytes of the file it takes, and the line if it is one. If
// final is set, the rest at the end of a file counts as a line as well. After ending, cut is how
// many bytes were dropped.
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
