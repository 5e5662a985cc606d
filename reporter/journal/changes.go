package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// chunkBytes is how much of a segment [Changes] reads at once.
const chunkBytes = 64 << 10

// errEnough ends a read early, without failing it.
var errEnough = errors.New("enough") //nolint:gochecknoglobals // a constant

// Changes calls f for the entries of the journal in dir that have transitions and a sequence number
// greater than after, newest first, until f returns false. It reads at most limit bytes, from the end,
// so its cost does not depend on the journal's size; whole is false if it stopped for limit or f before
// the last such entry. It may run while the journal is written. It skips lines that are not entries.
func Changes(dir string, after uint64, limit int64, f func(Entry) bool) (whole bool, err error) {
	ended, err := backward(dir, limit, after, func(line []byte) error {
		if seq, ok := seqOf(line); ok && seq <= after {
			whole = true
			return errEnough
		}
		if !bytes.Contains(line, []byte(`"transitions":`)) {
			return nil
		}
		if e, ok := decodeEntry(line); ok && len(e.Transitions) > 0 && !f(e) {
			return errEnough
		}
		return nil
	})
	return whole || ended, err
}

// Tail returns the latest entries of the journal in dir as written, one per line, limited to
// most bytes.
func Tail(dir string, most int64) ([]byte, error) {
	lines := [][]byte{nil} // so that the last line also ends with a newline
	_, err := backward(dir, most, 0, func(line []byte) error {
		lines = append(lines, line)
		return nil
	})
	slices.Reverse(lines)
	return bytes.Join(lines, []byte("\n")), err
}

// backward calls f for the complete lines of the journal in dir, newest first, until f returns an
// error; errEnough stops it without an error. It reads at most limit bytes and skips segments without
// entries after a sequence number. all reports whether it has read all other segments; the writer may
// have dropped older ones.
func backward(dir string, limit int64, after uint64, f func(line []byte) error) (all bool, err error) {
	segments, err := listSegments(dir)
	if err != nil {
		return false, fmt.Errorf("read journal: %w", err)
	}
	for _, s := range slices.Backward(segments) {
		read, err := linesBackward(filepath.Join(dir, segmentName(s.first)), limit, f)
		limit -= read
		switch {
		case errors.Is(err, errEnough):
			return false, nil
		case errors.Is(err, fs.ErrNotExist): // dropped by the writer meanwhile
		case err != nil:
			return false, fmt.Errorf("read journal: %w", err)
		}
		if limit <= 0 {
			return false, nil
		}
		if s.first <= after+1 {
			return true, nil
		}
	}
	return len(segments) == 0, nil
}

// seqOf returns the sequence number of a line, without decoding the rest.
func seqOf(line []byte) (seq uint64, ok bool) {
	digits, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	end := bytes.IndexByte(digits, ',')
	if !ok || end < 0 {
		return 0, false
	}
	return seq, json.Unmarshal(digits[:end], &seq) == nil
}

// linesBackward calls f for each complete line of a file, last line first. It returns how many
// bytes it read, at most limit.
func linesBackward(path string, limit int64, f func(line []byte) error) (read int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	at, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	var rest []byte // a line whose beginning is not read yet
	torn := true    // text after the last newline is not a complete line
	for at > 0 && read < limit {
		n := min(at, chunkBytes, limit-read)
		at, read = at-n, read+n
		chunk := make([]byte, n, int(n)+len(rest))
		if _, err := file.ReadAt(chunk, at); err != nil {
			return read, err
		}
		rest = append(chunk, rest...)
		for {
			i := bytes.LastIndexByte(rest, '\n')
			if i < 0 {
				break
			}
			line := rest[i+1:]
			rest = rest[:i]
			if torn {
				torn = false
				continue
			}
			if err := f(line); err != nil {
				return read, err
			}
		}
	}
	if at == 0 && !torn {
		err = f(rest)
	}
	return read, err
}
