package journald

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ErrFormat is returned for what is not in the export format.
var ErrFormat = errors.New("not in the journal's export format")

const (
	// maxValue bounds every field but the message: names and numbers are short.
	maxValue = 256
	// maxField is the largest field journald takes (DATA_SIZE_MAX). A larger one
	// means that the stream is not understood.
	maxField = 768 << 20
	// maxFields is more than journald lets an entry have (ENTRY_FIELD_COUNT_MAX).
	maxFields = 2048
	// bufferSize holds most entries, and more than is kept of a line.
	bufferSize = 64 << 10
)

// Decoder reads entries in the export format. It belongs to one goroutine.
//
// An entry is a list of fields and an empty line. A field is NAME=value in a
// line, or, where the value contains control characters, the line NAME, eight
// bytes with the value's size (little endian), the value, and a line feed.
type Decoder struct {
	r       *bufio.Reader
	maxText int
}

// NewDecoder returns a Decoder that cuts messages at maxText bytes.
func NewDecoder(r io.Reader, maxText int) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, max(bufferSize, 2*maxText)), maxText: maxText}
}

// Next reads one entry into e. It returns io.EOF at the end, also in the middle
// of an entry: what was read of that is void. Any other error but ErrFormat is
// the reader's. It does not allocate once e's fields have grown.
func (d *Decoder) Next(e *Entry) error {
	e.reset()
	for fields := 0; ; {
		line, cut, err := d.line()
		if err != nil {
			return err
		}
		if len(line) == 0 && cut == 0 {
			if fields == 0 {
				continue // journalctl ends an entry with one empty line; more do no harm
			}
			return nil
		}
		if fields++; fields > maxFields {
			return fmt.Errorf("an entry of more than %d fields: %w", maxFields, ErrFormat)
		}
		name, value, inLine := bytes.Cut(line, []byte{'='})
		if len(name) == 0 || cut > 0 && !inLine {
			return fmt.Errorf("field %.100q: %w", line, ErrFormat)
		}
		to := e.field(name)
		isMessage := to == &e.Message
		switch {
		case inLine && to == nil:
			err = e.number(name, value)
		case inLine:
			d.keep(to, value, isMessage)
		case to == nil:
			_, err = d.binary(nil, false)
		default:
			*to = (*to)[:0]
			cut, err = d.binary(to, isMessage)
		}
		if err != nil {
			return err
		}
		if isMessage {
			// What keep has left out of the line counts as well.
			e.MessageSize = uint64(len(*to)) + cut
			if inLine {
				e.MessageSize = uint64(len(value)) + cut
			}
		}
	}
}

// line reads a line, and reports how much of it did not fit into the buffer.
func (d *Decoder) line() (line []byte, cut uint64, err error) {
	line, err = d.r.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], 0, nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return nil, 0, noPartial(err)
	}
	// The buffer is larger than any text that is kept, but is reused by what
	// follows: the beginning is copied.
	line = bytes.Clone(line)
	for {
		more, err := d.r.ReadSlice('\n')
		cut += uint64(len(more))
		if err == nil {
			return line, cut - 1, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, 0, noPartial(err)
		}
	}
}

// noPartial makes an end within an entry the same as one between two.
func noPartial(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// limit is how much of a value is kept.
func (d *Decoder) limit(isMessage bool) int {
	if isMessage {
		return d.maxText
	}
	return maxValue
}

func (d *Decoder) keep(to *[]byte, value []byte, isMessage bool) {
	*to = append((*to)[:0], value[:min(len(value), d.limit(isMessage))]...)
}

// binary reads a value with its size in front of it, and reports how much of it
// was not kept.
func (d *Decoder) binary(to *[]byte, isMessage bool) (cut uint64, err error) {
	head, err := d.r.Peek(8)
	if err != nil {
		return 0, noPartial(err)
	}
	size := binary.LittleEndian.Uint64(head)
	if size > maxField {
		return 0, fmt.Errorf("a field of %d bytes: %w", size, ErrFormat)
	}
	if _, err := d.r.Discard(8); err != nil {
		return 0, noPartial(err)
	}
	keep := uint64(0)
	if to != nil {
		keep = min(size, uint64(d.limit(isMessage)))
	}
	for left := keep; left > 0; {
		b, err := d.r.Peek(int(min(left, bufferSize/2)))
		if err != nil {
			return 0, noPartial(err)
		}
		*to = append(*to, b...)
		left -= uint64(len(b))
		if _, err := d.r.Discard(len(b)); err != nil {
			return 0, noPartial(err)
		}
	}
	cut = size - keep
	if _, err := d.r.Discard(int(cut)); err != nil {
		return 0, noPartial(err)
	}
	end, err := d.r.ReadByte()
	if err != nil {
		return 0, noPartial(err)
	}
	if end != '\n' {
		return 0, fmt.Errorf("a field of %d bytes is longer: %w", size, ErrFormat)
	}
	return cut, nil
}

// number reads the fields that are times.
func (e *Entry) number(name, value []byte) error {
	var to *uint64
	switch string(name) {
	case "__REALTIME_TIMESTAMP":
		to = &e.Realtime
	case "__MONOTONIC_TIMESTAMP":
		to = &e.Monotonic
	case "_SOURCE_MONOTONIC_TIMESTAMP":
		to = &e.Stamp
	default:
		return nil
	}
	// A conversion for a call that keeps nothing does not allocate.
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return fmt.Errorf("%s=%.100q: %w", name, value, ErrFormat)
	}
	*to = n
	return nil
}
