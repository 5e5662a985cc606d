package journald

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
)

// ErrFormat is returned for input that is not in the export format.
var ErrFormat = errors.New("not in the journal's export format")

const (
	// maxValue bounds every field except the message: names and numbers are short.
	maxValue = 256
	// maxField is journald's limit (DATA_SIZE_MAX). A larger field means a misread stream.
	maxField = 768 << 20
	// maxFields is more than journald allows an entry to have (ENTRY_FIELD_COUNT_MAX).
	maxFields = 2048
	// bufferSize holds most entries, and more than what is kept of a line.
	bufferSize = 64 << 10
)

// Decoder reads entries in the export format. It belongs to one goroutine.
//
// An entry is a list of fields followed by an empty line. A field is NAME=value in a line, or, if
// the value contains control characters, the line NAME, eight bytes with the value's size (little
// endian), the value, and a line feed.
type Decoder struct {
	r       *bufio.Reader
	maxText int
}

// NewDecoder returns a Decoder that cuts messages at maxText bytes.
func NewDecoder(r io.Reader, maxText int) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, max(bufferSize, 2*maxText)), maxText: maxText}
}

// Next reads one entry into e. It returns io.EOF at the end, even in the middle of an entry, which the
// caller must ignore. Any other error except ErrFormat comes from the reader. Next stops allocating once
// e's fields have grown.
func (d *Decoder) Next(e *Entry) error {
	e.reset()
	for fields := 0; ; {
		line, cut, err := d.line()
		if err != nil {
			return err
		}
		if len(line) == 0 && cut == 0 {
			if fields == 0 {
				continue // journalctl ends an entry with one empty line; ignore further ones
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
			*to = append((*to)[:0], value[:min(len(value), d.limit(isMessage))]...)
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
			// The part of the line that was not kept counts as well.
			e.MessageSize = uint64(len(*to)) + cut
			if inLine {
				e.MessageSize = uint64(len(value)) + cut
			}
		}
	}
}

// line reads a line, and returns how many bytes of it did not fit into the buffer.
func (d *Decoder) line() (line []byte, cut uint64, err error) {
	line, err = d.r.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], 0, nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return nil, 0, err
	}
	// The buffer is larger than any text that is kept, but the next read reuses it.
	line = bytes.Clone(line)
	for {
		more, err := d.r.ReadSlice('\n')
		cut += uint64(len(more))
		if err == nil {
			return line, cut - 1, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, 0, err
		}
	}
}

// limit returns how many bytes of a value are kept.
func (d *Decoder) limit(isMessage bool) int {
	if isMessage {
		return d.maxText
	}
	return maxValue
}

// binary reads a value preceded by its size, and returns how many bytes of it were not kept.
func (d *Decoder) binary(to *[]byte, isMessage bool) (cut uint64, err error) {
	head, err := d.r.Peek(8)
	if err != nil {
		return 0, err
	}
	size := binary.LittleEndian.Uint64(head)
	if size > maxField {
		return 0, fmt.Errorf("a field of %d bytes: %w", size, ErrFormat)
	}
	if _, err := d.r.Discard(8); err != nil {
		return 0, err
	}
	keep := uint64(0)
	if to != nil {
		keep = min(size, uint64(d.limit(isMessage)))
	}
	for left := keep; left > 0; {
		b, err := d.r.Peek(int(min(left, bufferSize/2)))
		if err != nil {
			return 0, err
		}
		*to = append(*to, b...)
		left -= uint64(len(b))
		if _, err := d.r.Discard(len(b)); err != nil {
			return 0, err
		}
	}
	cut = size - keep
	if _, err := d.r.Discard(int(cut)); err != nil {
		return 0, err
	}
	end, err := d.r.ReadByte()
	if err != nil {
		return 0, err
	}
	if end != '\n' {
		return 0, fmt.Errorf("a field is longer than its size of %d bytes: %w", size, ErrFormat)
	}
	return cut, nil
}

// number parses the fields that are times.
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
	// This conversion does not allocate, because ParseUint does not keep the string.
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return fmt.Errorf("%s=%.100q: %w", name, value, ErrFormat)
	}
	*to = n
	return nil
}

// ParseJSON parses an entry of "journalctl -o json": an object of strings, arrays of bytes (no text),
// arrays of values (a field that occurs several times) and null (too long).
func ParseJSON(line []byte, e *Entry) error {
	e.reset()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := jsonValue(fields[name])
		if err != nil {
			return fmt.Errorf("field %.100q: %w", name, ErrFormat)
		}
		if to := e.field([]byte(name)); to != nil {
			*to = value
		} else if err := e.number([]byte(name), value); err != nil {
			return err
		}
	}
	if e.Realtime == 0 {
		return fmt.Errorf("no __REALTIME_TIMESTAMP: %w", ErrFormat)
	}
	e.MessageSize = uint64(len(e.Message))
	return nil
}

// jsonValue returns a field's value, the first one if the field occurs several times.
func jsonValue(raw json.RawMessage) ([]byte, error) {
	value, err := jsonBytes(raw)
	if err == nil {
		return value, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, err
	}
	return jsonBytes(list[0])
}

func jsonBytes(raw json.RawMessage) ([]byte, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil { // null too
		return []byte(text), nil
	}
	var codes []uint16 // encoding/json would expect Base64 for []byte
	if json.Unmarshal(raw, &codes) != nil {
		return nil, ErrFormat
	}
	value := make([]byte, len(codes))
	for i, c := range codes {
		if c > math.MaxUint8 {
			return nil, ErrFormat
		}
		value[i] = byte(c)
	}
	return value, nil
}
