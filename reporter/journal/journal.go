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
	// MaxBytes bounds all segments together; the oldest is dropped first. It must be larger than one
	// write: 32 KiB and a line. Default 64 MiB: about 60,000 events.
	MaxBytes int64
	// SegmentBytes is the size of a segment, unless lines written at once are longer. Default an
	// eighth of MaxBytes, so that dropping a segment loses little.
	SegmentBytes int64
	// Patience is how long Flush waits for the disk. Default one second: more than a busy disk
	// takes, and short compared with the five seconds within which faults are reported.
	Patience time.Duration

	// maxWaiting bounds the memory of entries that wait for a disk that does not respond.
	// Default 8 MiB, an eighth of MaxBytes' default: about 7,500 events.
	maxWaiting int
}

func (o Options) withDefaults() Options {
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, max(o.MaxBytes/8, 4096))
	o.Patience = cmp.Or(o.Patience, time.Second)
	o.maxWaiting = cmp.Or(o.maxWaiting, 8<<20)
	return o
}

// Journal appends entries to a folder. It is safe for concurrent use.
//
// Only one goroutine, the writer, accesses the disk, so callers wait at most Patience for a disk
// that does not respond. Waking the writer costs more than writing a line, so lines can be passed
// to it in batches: several calls of [Journal.Add], then [Journal.Flush].
type Journal struct {
	dir  string
	opts Options

	appending sync.Mutex // held by Add and Flush; it guards the next three fields
	buf       bytes.Buffer
	enc       *json.Encoder
	timer     *time.Timer

	wake     chan struct{} // receives when there is work, or on Close
	answered chan struct{} // receives when the writer has written something
	ended    chan struct{} // closed when the writer has ended

	mu      sync.Mutex // never held during I/O
	seq     uint64     // of the newest entry
	written uint64     // entries up to this number no longer wait
	queue   []*work
	room    [8]*work  // backs a short queue
	spare   []*work   // buffers to reuse: one is filled while another is written
	wanted  bool      // the writer should work until the queue is empty
	waiting int       // bytes of lines in the queue
	behind  bool      // a flush has timed out, and lines still wait
	busy    time.Time // when the writer started its current work; zero if idle
	closed  bool
	lost    error // the first write error since the last Flush, or of ending or removing a segment
	err     error // from closing the file
	stats   Stats

	// Used by the writer only, and by Open before it starts.
	file     *os.File
	size     int64 // of file
	segments []segment
}

// batchBytes is how many bytes of lines are written at once, unless a line is longer.
const batchBytes = 32 << 10

// work is a task of the writer: writing lines or calling a function.
type work struct {
	first, last uint64 // sequence numbers of the lines
	count       int
	lines       []byte
	taken       bool // the writer has started: no more lines may be added
	ended       bool
	err         error

	do   func() error
	done chan error // receives the result of do; buffered
}

// Stats holds a journal's counters since it was opened.
type Stats struct {
	Appended        uint64 // entries written
	Failed          uint64 // entries lost because they could not be written
	DroppedSegments uint64 // removed to stay within MaxBytes
	TornBytes       uint64 // length of an unfinished last line that Open cut off
	Damaged         uint64 // lines and segments that Read could not read
	Bytes           int64  // on disk now
	Waiting         int    // entries that wait for the disk
	// Late is how long the disk has not responded; 0 if it responds or was not accessed.
	Late time.Duration
}

type segment struct {
	first uint64 // sequence number of its first entry
	size  int64
}

// Open opens the journal in dir, creating it if needed, and cuts off a torn last line. If the newest
// segment can't be read, Open skips numbers before the next entry. Readers count these as lost, because
// it is not known how many of them had entries.
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

// begin starts the segment that begins with entry seq. If the previous segment can't be synced or
// closed, begin succeeds anyway, and the next Flush returns that error.
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
		j.lose(fmt.Errorf("finish the previous segment: %w", err))
	}
	return nil
}

// lose makes the next Flush return an error, unless it already has one.
func (j *Journal) lose(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = cmp.Or(j.lost, err)
}

// minLine is less than the length of any entry's line, in bytes.
const minLine = 64

// resume opens the newest segment and cuts off a line that a killed agent left unfinished. If the
// disk fails, resume leaves the segment as it is and starts the next one, with a number above all
// that the unread part may have.
func (j *Journal) resume() error {
	last := &j.segments[len(j.segments)-1]
	good, seq := int64(0), last.first-1
	f, err := os.OpenFile(j.path(last.first), os.O_RDWR|os.O_APPEND, 0o600)
	if err == nil {
		good, seq, err = scanSegment(f, last.first)
		if torn := last.size - good; err == nil && torn > 0 {
			if err = f.Truncate(good); err == nil {
				j.stats.TornBytes += uint64(torn)
			}
		}
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		j.seq = seq + uint64(max(last.size-good, 0))/minLine + 1
		if next := j.begin(j.seq + 1); next != nil {
			return errors.Join(err, next)
		}
		return nil
	}
	j.file, last.size, j.size, j.seq = f, good, good, seq
	return nil
}

// Add assigns the entry the next sequence number and queues it. It is written at the next Flush, or
// earlier once many are queued. Add returns the entry's line, which is the entry as JSON and a newline;
// it is valid until the next Add. If Add returns an error, the entry is lost and counted as failed.
func (j *Journal) Add(e Entry) (seq uint64, line []byte, err error) {
	j.appending.Lock()
	defer j.appending.Unlock()
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
		err = fmt.Errorf("append to journal: %d entries are waiting for the disk, which has not responded for %s", j.stats.Waiting, j.late(time.Now()).Round(time.Second))
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

// batch returns the work to add the line with the sequence number to. The caller must hold mu.
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

// Flush waits until all added entries are in the files. If the disk does not respond within
// Patience, Flush returns without an error: the entries stay in memory, with their numbers, and are
// written when the disk responds. Until then, further calls do not wait. Flush returns an error if
// entries were lost since the last call (they are counted; their numbers are reused or missing), if a
// full segment could not be synced (a power failure may lose its entries), or if an old segment could
// not be removed.
func (j *Journal) Flush() error {
	j.appending.Lock()
	defer j.appending.Unlock()
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

// startWriting wakes the writer. It returns the last lines of the queue, or nil if there are
// none, and how long to wait for them.
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
	if !j.behind { // otherwise the disk does not keep up, and further callers must not wait either
		wait = j.opts.Patience - j.late(time.Now())
	}
	return last, wait
}

// await reports whether the writer has finished w within the time.
func (j *Journal) await(w *work, within time.Duration) bool {
	if within <= 0 {
		return j.hasEnded(w)
	}
	// Most disks accept lines at once: let the writer run before setting a timer.
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

// late returns how long the writer has been busy with its current work. The caller must hold mu.
func (j *Journal) late(now time.Time) time.Duration {
	if j.busy.IsZero() {
		return 0
	}
	return now.Sub(j.busy)
}

// kick wakes the writer. The caller must hold mu.
func (j *Journal) kick() {
	j.wanted = true
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Do has the writer call f after all entries added before and before all entries added later,
// and returns f's error. If ctx ends first, Do returns its error, and f may still be called later.
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

// Sync syncs the appended entries to disk, so that they survive a power failure.
func (j *Journal) Sync(ctx context.Context) error {
	err := j.Do(ctx, func() error { return j.file.Sync() })
	j.mu.Lock()
	closed := j.closed // Close has synced it
	j.mu.Unlock()
	if err == nil || closed && errors.Is(err, os.ErrClosed) {
		return nil
	}
	return fmt.Errorf("sync journal: %w", err)
}

// Seq returns the sequence number of the newest entry, or 0 if there is none.
func (j *Journal) Seq() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Written returns the sequence number up to which no entry waits for the disk: each entry is in the
// files or lost.
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

// closeWithin is how long Close waits for unwritten entries.
const closeWithin = 3 * time.Second

// Close writes the queued entries, then syncs and closes the journal. It may be called more than
// once. If the disk does not respond in time, Close returns an error, and the writer continues for
// as long as the process runs.
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
		return fmt.Errorf("close journal: the disk has not responded for %s: %d entries are not written",
			max(within, s.Late).Round(time.Second), s.Waiting)
	}
}
