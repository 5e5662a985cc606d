package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

	// maxWaiting bounds the memory of entries that wait for a disk that does not answer.
	// Default 8 MiB, an eighth of what the disk has: about 7,500 events.
	maxWaiting int
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
	if o.maxWaiting <= 0 {
		o.maxWaiting = 8 << 20
	}
	return o
}

// Journal appends entries to a folder. It is safe for concurrent use.
//
// One goroutine, the writer, is alone with the disk: nobody waits for a disk that does not
// answer longer than Patience. To wake it costs more than to write a line, so lines can be
// handed to it together: [Journal.Add] several, then [Journal.Flush].
type Journal struct {
	dir  string
	opts Options

	appending sync.Mutex // one Add, Flush or Append at a time; it guards the next three
	buf       bytes.Buffer
	enc       *json.Encoder
	timer     *time.Timer

	wake     chan struct{} // work is wanted, or the end
	answered chan struct{} // the writer has written something
	ended    chan struct{} // closed when the writer has ended

	mu      sync.Mutex // never held during I/O
	seq     uint64     // the newest entry's
	written uint64     // up to which nothing waits
	queue   []*work
	room    [8]*work  // for a short queue
	spare   []*work   // for the next lines: one is filled while another is written
	wanted  bool      // the writer is to work until the queue is empty
	waiting int       // bytes of the queue
	behind  bool      // somebody has waited in vain, and lines wait yet
	busy    time.Time // when the writer began what it does now; zero: it does nothing
	closed  bool
	lost    error // of the first write that failed since the last Flush, or of a segment's end
	err     error // of closing the file
	stats   Stats

	// The writer's, and Open's before it.
	file     *os.File
	size     int64 // of file
	segments []segment
}

// batchBytes is how many bytes of lines are written at once, if none of them is long.
const batchBytes = 32 << 10

// work is what the writer has to do: to write lines, or to call a function.
type work struct {
	first, last uint64 // sequence numbers of the lines
	count       int
	lines       []byte
	taken       bool // the writer has begun: no line is added any more
	ended       bool
	err         error

	do   func() error
	done chan error // of do, with room for it
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

// begin starts the segment whose first entry will be seq. What the one before can't take any
// more does not matter to it; the error of that is Flush's.
func (j *Journal) begin(seq uint64) error {
	f, err := os.OpenFile(j.path(seq), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	before := j.file
	j.file, j.size = f, 0
	j.segments = append(j.segments, segment{first: seq})
	if before == nil {
		return nil
	}
	if err := errors.Join(before.Sync(), before.Close()); err != nil {
		j.mu.Lock()
		j.lost = cmp.Or(j.lost, fmt.Errorf("end the segment before: %w", err))
		j.mu.Unlock()
	}
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

// Append is [Journal.Add] and [Journal.Flush] of one entry. Where the entry could not be
// written, its number is 0.
func (j *Journal) Append(e Entry) (seq uint64, err error) {
	j.appending.Lock()
	defer j.appending.Unlock()
	if seq, _, err = j.add(e); err != nil {
		return 0, err
	}
	if err := j.flush(); err != nil && j.Seq() < seq {
		return 0, err
	}
	return seq, nil
}

// Add gives the entry the next sequence number and has it written, with others, at the next
// Flush or as soon as there are many. It returns the entry's line, which is the entry in JSON
// and a newline, good until the next Add or Append.
// With an error the entry is lost, and counted.
func (j *Journal) Add(e Entry) (seq uint64, line []byte, err error) {
	j.appending.Lock()
	defer j.appending.Unlock()
	return j.add(e)
}

func (j *Journal) add(e Entry) (seq uint64, line []byte, err error) {
	e.Seq = j.Seq() + 1
	j.buf.Reset()
	err = j.enc.Encode(&e)
	line = j.buf.Bytes()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil:
		err = fmt.Errorf("encode journal entry: %w", err)
	case j.closed:
		err = fmt.Errorf("append to journal: %w", os.ErrClosed)
	case j.waiting+len(line) > j.opts.maxWaiting && j.waiting > 0:
		err = fmt.Errorf("append to journal: %d entries wait for a disk that has not answered for %s", j.stats.Waiting, j.late(time.Now()).Round(time.Second))
	}
	if err != nil {
		j.stats.Failed++
		return 0, nil, err
	}
	w := j.batch(e.Seq)
	w.lines = append(w.lines, line...)
	w.last, j.seq = e.Seq, e.Seq
	w.count++
	j.waiting += len(line)
	j.stats.Waiting++
	if len(w.lines) >= batchBytes {
		j.kick()
	}
	return e.Seq, line, nil
}

// batch returns where the line of a sequence number goes. The lock is held.
func (j *Journal) batch(seq uint64) *work {
	if n := len(j.queue); n > 0 {
		if w := j.queue[n-1]; w.do == nil && !w.taken && len(w.lines) < batchBytes {
			return w
		}
	}
	var w *work
	if n := len(j.spare); n > 0 {
		w, j.spare = j.spare[n-1], j.spare[:n-1]
	} else {
		w = &work{}
	}
	*w = work{first: seq, lines: w.lines[:0]}
	j.queue = append(j.queue, w)
	return w
}

// Flush returns when all entries that were added are in the files, unless the disk does not
// answer for Patience: then they wait in memory, with their numbers, and are written in their
// turn when the disk does. Until then nobody waits. The error is of entries that were lost
// since the last call; they are counted, and their numbers are given again or missing. Or it
// is of a full segment that could not be synced: a power failure may lose entries of it.
func (j *Journal) Flush() error {
	j.appending.Lock()
	defer j.appending.Unlock()
	return j.flush()
}

func (j *Journal) flush() error {
	w, wait := j.startWriting()
	if w != nil && !j.await(w, wait) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.behind = !w.ended
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if w != nil && w.err != nil {
		j.seq, j.written = w.first-1, w.first-1
	}
	err := j.lost
	if j.lost = nil; err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	return nil
}

// startWriting has the writer write what waits. It returns the last lines, and how long to wait for
// them; nil: none wait.
func (j *Journal) startWriting() (last *work, wait time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range slices.Backward(j.queue) {
		if w.do == nil {
			last = w
			break
		}
	}
	if last == nil {
		return nil, 0
	}
	j.kick()
	if !j.behind { // else the disk does not keep up, and whoever comes next is not to wait either
		wait = j.opts.Patience - j.late(time.Now())
	}
	return last, wait
}

// await reports whether the writer has written lines within the time.
func (j *Journal) await(w *work, within time.Duration) bool {
	if within <= 0 {
		return j.hasEnded(w)
	}
	// Most disks take lines at once: let the writer run before a timer is set.
	runtime.Gosched()
	if j.hasEnded(w) {
		return true
	}
	j.timer.Reset(within)
	defer j.timer.Stop()
	for {
		select {
		case <-j.answered:
			if j.hasEnded(w) {
				return true
			}
		case <-j.timer.C:
			return j.hasEnded(w)
		}
	}
}

func (j *Journal) hasEnded(w *work) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return w.ended
}

// late returns how long the writer has been at what it does. The lock is held.
func (j *Journal) late(now time.Time) time.Duration {
	if j.busy.IsZero() {
		return 0
	}
	return now.Sub(j.busy)
}

// kick wakes the writer. The lock is held.
func (j *Journal) kick() {
	j.wanted = true
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
	j.mu.Lock()
	closed := j.closed // which syncs it
	j.mu.Unlock()
	if err == nil || closed && errors.Is(err, os.ErrClosed) {
		return nil
	}
	return fmt.Errorf("sync journal: %w", err)
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
	within := max(closeWithin, j.opts.Patience)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-j.ended:
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.err
	case <-timer.C:
		s := j.Stats()
		return fmt.Errorf("close journal: the disk has not answered for %s: %d entries are not written",
			max(within, s.Late).Round(time.Second), s.Waiting)
	}
}
