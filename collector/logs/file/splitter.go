package file

import "bytes"

// splitter cuts what is read of a file into lines, in a buffer of fixed size.
// Bytes go in by room and filled, lines come out by next. It belongs to one
// goroutine.
type splitter struct {
	buf        []byte
	start, end int    // what is in buf and was not taken by next
	limit      int    // of a line's length
	cutting    bool   // the beginning of the current line was handed out
	cut        uint64 // bytes of it that were dropped
}

// chunk is how much is read at a time.
const chunk = 64 << 10

func newSplitter(limit int) *splitter {
	return &splitter{buf: make([]byte, limit+chunk), limit: limit}
}

// piece is what next has found.
type piece int

const (
	// none: more bytes are needed.
	none piece = iota
	// whole is a line without its line end.
	whole
	// beginning is as much of a line that is too long as may be handed over.
	beginning
	// ending is where a line that was too long ends.
	ending
	// dropped are bytes that belong to no line, or to one that is too long.
	dropped
)

// room returns where the next bytes go. It invalidates the lines of next.
func (s *splitter) room() []byte {
	if s.start > 0 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	return s.buf[s.end:]
}

// filled says that n bytes were put into room.
func (s *splitter) filled(n int) { s.end += n }

// rest is how many bytes wait for the end of their line.
func (s *splitter) rest() int { return s.end - s.start }

// reset forgets everything.
func (s *splitter) reset() { s.start, s.end, s.cutting, s.cut = 0, 0, false, 0 }

// next returns what comes next, how many bytes of the file it takes, and the
// line where it is one. At the end of a file the rest is a line as well: final.
// After ending, cutOff reports how much was dropped.
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

// skipLine passes by what is left of a line that is too long.
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
