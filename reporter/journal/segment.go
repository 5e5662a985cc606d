package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	segmentPrefix = "journal-"
	segmentSuffix = ".jsonl"
)

func segmentName(first uint64) string {
	return fmt.Sprintf("%s%020d%s", segmentPrefix, first, segmentSuffix)
}

// listSegments returns the segments in a folder, oldest first. It ignores other files.
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
		if errors.Is(err, fs.ErrNotExist) {
			continue // dropped by the writer meanwhile
		}
		if err != nil {
			return nil, err
		}
		segments = append(segments, segment{first: first, size: info.Size()})
	}
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	return segments, nil
}

// Copy copies the newest segments of the journal in one folder to another, limited to most bytes
// in total. It always copies the newest segment, even if that exceeds the limit, because sequence
// numbers continue after it.
func Copy(from, to string, most int64) error {
	segments, err := listSegments(from)
	if err != nil {
		return fmt.Errorf("copy journal: %w", err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("copy journal: %w", err)
	}
	for i, s := range slices.Backward(segments) {
		if most -= s.size; most < 0 && i < len(segments)-1 {
			return nil
		}
		name := segmentName(s.first)
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copy journal: %w", err)
		}
	}
	return nil
}

// scanSegment returns the length of the complete lines and the sequence number of the last entry.
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

// readLines calls f for each complete line, including its newline.
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

// Read calls f for each entry of the journal in dir whose sequence number is greater than after,
// oldest first, until f returns an error. It may run while the journal is written; it then ends at
// the last complete entry. It skips lines that are not entries, and unreadable parts of segments;
// damaged is the number of such lines and segments.
func Read(dir string, after uint64, f func(Entry) error) (damaged int, err error) {
	follower := Follower{dir: dir, after: after}
	return follower.Read(f)
}

// Read calls the function [Read] for this journal, and counts what is damaged in [Stats].
func (j *Journal) Read(after uint64, f func(Entry) error) (damaged int, err error) {
	damaged, err = Read(j.dir, after, f)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.Damaged += uint64(damaged)
	return damaged, err
}

// Follower reads a journal repeatedly, each time only the new entries.
type Follower struct {
	dir     string
	after   uint64 // entries up to this number are skipped
	segment uint64 // the segment read last
	offset  int64  // the position in it
}

// Follow returns a Follower that starts with the first entry of the journal in dir.
func Follow(dir string) *Follower { return &Follower{dir: dir} }

// Read calls f, like [Read], for each entry it was not called for yet. If f returns an error,
// entries of that segment may be repeated by the next call.
func (r *Follower) Read(f func(Entry) error) (damaged int, err error) {
	segments, err := listSegments(r.dir)
	if err != nil {
		return 0, fmt.Errorf("read journal: %w", err)
	}
	var stop error
	each := func(e Entry) error { stop = f(e); return stop }
	for i, s := range segments {
		if s.first < r.segment || i+1 < len(segments) && segments[i+1].first <= r.after+1 {
			continue
		}
		n, err := r.readSegment(s, each)
		damaged += n
		switch {
		case err == nil, os.IsNotExist(err): // dropped by the writer meanwhile
		case stop != nil, errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			// f ends it, or the process or the machine is short of something.
			return damaged, fmt.Errorf("read journal: %w", err)
		default: // the disk fails: what follows must not depend on it
			damaged++
			r.segment, r.offset = s.first, s.size
		}
	}
	return damaged, nil
}

func (r *Follower) readSegment(s segment, f func(Entry) error) (damaged int, err error) {
	from := int64(0)
	if s.first == r.segment {
		from = r.offset
	}
	if s.size <= from {
		return 0, nil
	}
	file, err := os.Open(filepath.Join(r.dir, segmentName(s.first)))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	err = readLines(file, func(line []byte) error {
		from += int64(len(line))
		e, ok := decodeEntry(line)
		switch {
		case !ok:
			damaged++
			return nil
		case e.Seq <= r.after:
			return nil
		}
		return f(e)
	})
	if err == nil {
		r.segment, r.offset = s.first, from
	}
	return damaged, err
}

// decodeEntry decodes a line. ok is false if it is not an entry, for example after a crash.
func decodeEntry(line []byte) (e Entry, ok bool) {
	err := json.NewDecoder(bytes.NewReader(line)).Decode(&e)
	return e, err == nil && e.Seq != 0
}
