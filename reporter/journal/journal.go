package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options bound a journal. Zero values take the defaults.
type Options struct {
	// MaxBytes bounds all segments together; the oldest is dropped first.
	// Default 64 MiB: about 60,000 events.
	MaxBytes int64
	// SegmentBytes is the size at which a new segment is begun. Default an
	// eighth of MaxBytes, so that dropping one loses little.
	SegmentBytes int64
	// Patience is how long Append waits for the disk. Default one second: more than a
	// busy disk takes, and little beside the five in which a fault is reported.
	Patience time.Duration
	// MaxWaiting bounds the memory of entries that wait for a disk that does not answer.
	// Default 8 MiB, an eighth of what the disk has: about 7,500 events.
	MaxWaiting int
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = max(o.MaxBytes/8, 4096)
	}
	if o.Patience <= 0 {
		o.Patience = time.Second
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 8 << 20
	}
	return o
}

// Journal appends entries to a folder. It is safe for concurrent use.
//
// One goroutine, the writer, is alone with the disk: nobody waits for a disk that does not
// answer longer than Patience.
type Journal struct {
	dir  string
	opts Options

	appending sync.Mutex // one Append at a time; it guards the next three
	buf       bytes.Buffer
	enc       *json.Encoder
	timer     *time.Timer

	wake     chan struct{} // tells the writer of work, and of the end
	answered chan struct{} // tells Append that the writer has done something
	ended    chan struct{} // closed when the writer has ended

	mu      sync.Mutex // never held during I/O
	seq     uint64     // the newest entry's
	written uint64     // up to which nothing waits
	queue   []*work
	waiting int       // bytes of the queue
	busy    time.Time // when the writer began what it does now; zero: it does nothing
	closed  bool
	err     error // of closing the file
	stats   Stats

	// The writer's, and Open's before it.
	file     *os.File
	size     int64 // of file
	segments []segment
}

// work is what the writer has to do: to write a line, or to call a function.
type work struct {
	seq  uint64
	line []byte
	do   func() error
	done chan error // of do, with room for it

	ended bool // guarded by mu, as err is
	err   error
}

// Stats counts what a journal has done since it was opened.
type Stats struct {
	Appended        uint64 // entries written
	Failed          uint64 // entries that could not be written: lost
	DroppedSegments uint64 // removed to keep the bound
	TornBytes       uint64 // of an unfinished last line, cut off at Open
	Bytes           int64  // on disk now
	Waiting         int    // entries that wait for the disk
	// Late is how long the disk has not answered; 0: it does, or nothing was asked of it.
	Late time.Duration
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
	j := &Journal{
		dir: dir, opts: opts.withDefaults(), timer: time.NewTimer(0),
		wake: make(chan struct{}, 1), answered: make(chan struct{}, 1), ended: make(chan struct{}),
	}
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
		if j.file != nil {
			err = errors.Join(err, j.file.Close())
		}
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.written = j.seq
	j.stats.Bytes = j.bytes()
	go j.write()
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
	j.file, j.size = f, 0
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

// Append gives the entry the next sequence number and has it written. When that fails the
// entry is counted as lost and the next one is tried anew.
//
// An entry is in the files when Append returns, unless the disk does not answer: then it
// waits in memory, with its number, and is written in its turn when the disk does. What
// fails then is counted, and its number is missing.
func (j *Journal) Append(e Entry) (seq uint64, err error) {
	seq, _, err = j.AppendLine(e)
	return seq, err
}

// AppendLine is [Journal.Append] and returns what it has written: the entry in JSON and a
// newline, good until the next call of either.
func (j *Journal) AppendLine(e Entry) (seq uint64, line []byte, err error) {
	j.appending.Lock()
	defer j.appending.Unlock()
	began := time.Now()
	j.mu.Lock()
	e.Seq = j.seq + 1
	j.mu.Unlock()
	j.buf.Reset()
	if err := j.enc.Encode(&e); err != nil {
		j.fail()
		return 0, nil, fmt.Errorf("encode journal entry: %w", err)
	}
	w := &work{seq: e.Seq, line: j.buf.Bytes()}
	wait, err := j.enqueue(w, began)
	if err != nil {
		return 0, nil, fmt.Errorf("append to journal: %w", err)
	}
	if !j.await(w, wait) {
		j.buf = bytes.Buffer{} // this one is the writer's
		return w.seq, w.line, nil
	}
	if w.err != nil {
		return 0, nil, fmt.Errorf("append to journal: %w", w.err)
	}
	return w.seq, w.line, nil
}

func (j *Journal) fail() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.Failed++
}

// enqueue hands a line to the writer, and returns how long to wait for it.
func (j *Journal) enqueue(w *work, now time.Time) (wait time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		j.stats.Failed++
		return 0, os.ErrClosed
	case j.waiting+len(w.line) > j.opts.MaxWaiting && j.waiting > 0:
		j.stats.Failed++
		return 0, fmt.Errorf("%d entries wait for a disk that has not answered for %s", j.stats.Waiting, j.late(now).Round(time.Second))
	}
	wait = j.opts.Patience - j.late(now)
	if j.waiting > 0 {
		wait = 0 // the disk does not keep up, and whoever comes next is not to wait either
	}
	j.seq = w.seq
	j.queue = append(j.queue, w)
	j.waiting += len(w.line)
	j.stats.Waiting++
	j.kick()
	return wait, nil
}

// await reports whether the writer has done with a line within the time. Where it has and
// the line could not be written, its number is free again.
func (j *Journal) await(w *work, within time.Duration) bool {
	ended := func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		if w.ended && w.err != nil {
			j.seq, j.written = w.seq-1, w.seq-1
		}
		return w.ended
	}
	if within <= 0 {
		return ended()
	}
	j.timer.Reset(within)
	defer j.timer.Stop()
	for {
		select {
		case <-j.answered:
			if ended() {
				return true
			}
		case <-j.timer.C:
			return ended()
		}
	}
}

// late returns how long the writer has been at what it does. The lock is held.
func (j *Journal) late(now time.Time) time.Duration {
	if j.busy.IsZero() {
		return 0
	}
	return now.Sub(j.busy)
}

// kick wakes the writer.
func (j *Journal) kick() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Do has f called behind the entries that were appended before it, and before those that
// are appended from now on, and returns what it returns; or ctx's error, when that ends
// before. f may then be called all the same.
func (j *Journal) Do(ctx context.Context, f func() error) error {
	w := &work{do: f, done: make(chan error, 1)}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return os.ErrClosed
	}
	j.queue = append(j.queue, w)
	j.kick()
	j.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sync makes what was appended survive a power failure too.
func (j *Journal) Sync(ctx context.Context) error {
	err := j.Do(ctx, func() error { return j.file.Sync() })
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// Seq returns the sequence number of the newest entry; 0: there is none.
func (j *Journal) Seq() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Written returns the sequence number up to which no entry waits for the disk: each is in
// the files, or lost.
func (j *Journal) Written() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.written
}

// Stats returns the counters. It does not wait for the disk.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stats
	if late := j.late(time.Now()); late > j.opts.Patience {
		s.Late = late
	}
	return s
}

// closeWithin is how long Close waits for what is not written.
const closeWithin = 3 * time.Second

// Close writes what waits, syncs and closes the journal. It may be called more than once.
// Where the disk does not answer it returns an error, and the writer goes on if the process
// does.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.kick()
	j.mu.Unlock()
	timer := time.NewTimer(max(closeWithin, j.opts.Patience))
	defer timer.Stop()
	select {
	case <-j.ended:
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.err
	case <-timer.C:
		s := j.Stats()
		return fmt.Errorf("close journal: %d entries are not written: the disk has not answered for %s", s.Waiting, s.Late.Round(time.Second))
	}
}
