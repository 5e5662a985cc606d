package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Options bound a journal. Zero values take the defaults.
type Options struct {
	// MaxBytes bounds all segments together; the oldest is dropped first.
	// Default 64 MiB: about 60,000 events.
	MaxBytes int64
	// SegmentBytes is the size at which a new segment is begun. Default an
	// eighth of MaxBytes, so that dropping one loses little.
	SegmentBytes int64
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = max(o.MaxBytes/8, 4096)
	}
	return o
}

// Journal appends entries to a folder. It is safe for concurrent use.
type Journal struct {
	dir  string
	opts Options

	mu       sync.Mutex
	file     *os.File
	size     int64 // of file
	segments []segment
	seq      uint64
	stats    Stats
	buf      bytes.Buffer
	enc      *json.Encoder
}

// Stats counts what a journal has done since it was opened.
type Stats struct {
	Appended        uint64 // entries written
	Failed          uint64 // entries that could not be written: lost
	DroppedSegments uint64 // removed to keep the bound
	TornBytes       uint64 // of an unfinished last line, cut off at Open
	Bytes           int64  // on disk now
}

type segment struct {
	first uint64 // sequence number of its first entry
	size  int64
}

// Open opens or makes the journal in dir and repairs a torn last line.
func Open(dir string, opts Options) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{dir: dir, opts: opts.withDefaults()}
	j.enc = json.NewEncoder(&j.buf)
	j.enc.SetEscapeHTML(false)
	segments, err := listSegments(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.segments = segments
	if len(segments) == 0 {
		err = j.begin(1)
	} else {
		err = j.resume()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open journal: %w", err), j.Close())
	}
	return j, nil
}

func (j *Journal) path(first uint64) string {
	return filepath.Join(j.dir, segmentName(first))
}

// begin starts the segment whose first entry will be seq.
func (j *Journal) begin(seq uint64) error {
	f, err := os.OpenFile(j.path(seq), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if j.file != nil {
		if err := errors.Join(j.file.Sync(), j.file.Close()); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	j.file, j.size, j.seq = f, 0, seq-1
	j.segments = append(j.segments, segment{first: seq})
	return nil
}

// resume opens the newest segment and cuts off what a kill left unfinished.
func (j *Journal) resume() error {
	last := &j.segments[len(j.segments)-1]
	f, err := os.OpenFile(j.path(last.first), os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	j.file = f
	good, seq, err := scanSegment(f, last.first)
	if err != nil {
		return err
	}
	if torn := last.size - good; torn > 0 {
		if err := f.Truncate(good); err != nil {
			return err
		}
		j.stats.TornBytes += uint64(torn)
	}
	last.size, j.size, j.seq = good, good, seq
	return nil
}

// Append gives the entry the next sequence number and writes it. When the
// write fails the entry is counted as lost and the next one is tried anew.
func (j *Journal) Append(e Entry) (seq uint64, err error) {
	seq, _, err = j.AppendLine(e)
	return seq, err
}

// AppendLine is [Journal.Append] and returns what it has written: the entry in JSON and a
// newline, good until the next call of either.
func (j *Journal) AppendLine(e Entry) (seq uint64, line []byte, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return 0, nil, fmt.Errorf("append to journal: %w", os.ErrClosed)
	}
	defer func() {
		if err != nil {
			j.stats.Failed++
		}
	}()
	if j.size >= j.opts.SegmentBytes {
		if err := j.rotate(); err != nil {
			return 0, nil, fmt.Errorf("append to journal: %w", err)
		}
	}
	e.Seq = j.seq + 1
	j.buf.Reset()
	if err := j.enc.Encode(&e); err != nil {
		return 0, nil, fmt.Errorf("encode journal entry: %w", err)
	}
	n, err := j.file.Write(j.buf.Bytes())
	if err != nil {
		// A partial line (disk full) would make the next one unreadable.
		if n > 0 {
			err = errors.Join(err, j.file.Truncate(j.size))
		}
		return 0, nil, fmt.Errorf("append to journal: %w", err)
	}
	j.seq = e.Seq
	j.size += int64(n)
	j.segments[len(j.segments)-1].size = j.size
	j.stats.Appended++
	return e.Seq, j.buf.Bytes(), nil
}

func (j *Journal) rotate() error {
	if err := j.begin(j.seq + 1); err != nil {
		return err
	}
	total := int64(0)
	for _, s := range j.segments {
		total += s.size
	}
	// Room for the new segment is made now, so that the bound holds always.
	for len(j.segments) > 1 && total+j.opts.SegmentBytes > j.opts.MaxBytes {
		oldest := j.segments[0]
		if err := os.Remove(j.path(oldest.first)); err != nil {
			return err
		}
		total -= oldest.size
		j.segments = j.segments[1:]
		j.stats.DroppedSegments++
	}
	return nil
}

// Seq returns the sequence number of the newest entry; 0: there is none.
func (j *Journal) Seq() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Sync makes what was appended survive a power failure too.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// Stats returns the counters.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stats
	for _, seg := range j.segments {
		s.Bytes += seg.size
	}
	return s
}

// Close syncs and closes the journal. It may be called more than once.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.file.Sync(), j.file.Close())
	j.file = nil
	if err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}
