package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	segmentPrefix = "journal-"
	segmentSuffix = ".jsonl"
)

func segmentName(first uint64) string {
	return fmt.Sprintf("%s%020d%s", segmentPrefix, first, segmentSuffix)
}

// listSegments returns the segments of a folder, oldest first. Files of other
// names are left alone.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segments []segment
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), segmentPrefix)
		if !ok {
			continue
		}
		if digits, ok = strings.CutSuffix(digits, segmentSuffix); !ok {
			continue
		}
		first, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		segments = append(segments, segment{first: first, size: info.Size()})
	}
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	return segments, nil
}

// scanSegment returns the length of the complete lines and the sequence number
// of the last entry.
func scanSegment(r io.Reader, first uint64) (good int64, seq uint64, err error) {
	seq = first - 1
	err = readLines(r, func(line []byte) error {
		var e struct {
			Seq uint64 `json:"seq"`
		}
		if json.Unmarshal(line, &e) == nil && e.Seq > seq {
			seq = e.Seq
		}
		good += int64(len(line))
		return nil
	})
	return good, seq, err
}

// readLines calls f for each line that ends with a newline, newline included.
func readLines(r io.Reader, f func(line []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var long []byte
	for {
		part, err := br.ReadSlice('\n')
		long = append(long, part...)
		switch {
		case err == nil:
			if err := f(long); err != nil {
				return err
			}
			long = long[:0]
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// Read calls f for each entry of the journal in dir whose sequence number is
// greater than after, oldest first, until f returns an error. It may run
// beside a writer and then ends at the last complete entry. damaged counts
// lines that are no entries; they are skipped.
func Read(dir string, after uint64, f func(Entry) error) (damaged int, err error) {
	segments, err := listSegments(dir)
	if err != nil {
		return 0, fmt.Errorf("read journal: %w", err)
	}
	for i, s := range segments {
		if i+1 < len(segments) && segments[i+1].first <= after+1 {
			continue
		}
		n, err := readSegment(filepath.Join(dir, segmentName(s.first)), after, f)
		damaged += n
		if os.IsNotExist(err) {
			continue // dropped by the writer meanwhile
		}
		if err != nil {
			return damaged, fmt.Errorf("read journal: %w", err)
		}
	}
	return damaged, nil
}

func readSegment(path string, after uint64, f func(Entry) error) (damaged int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	err = readLines(file, func(line []byte) error {
		e, ok := decodeEntry(line)
		if !ok {
			damaged++
			return nil
		}
		if e.Seq <= after {
			return nil
		}
		return f(e)
	})
	return damaged, err
}

// decodeEntry reports whether a line is an entry: a crash may have damaged it.
func decodeEntry(line []byte) (e Entry, ok bool) {
	err := json.NewDecoder(bytes.NewReader(line)).Decode(&e)
	return e, err == nil && e.Seq != 0
}
