package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// write is the writer goroutine: it processes the queue in order until the journal is closed.
func (j *Journal) write() {
	defer close(j.ended)
	for {
		w, end := j.next()
		switch {
		case end:
			err := errors.Join(j.file.Sync(), j.file.Close())
			if err != nil {
				err = fmt.Errorf("close journal: %w", err)
			}
			j.mu.Lock()
			j.err = err
			j.mu.Unlock()
			return
		case w == nil:
			<-j.wake
		case w.do != nil:
			j.done(w, w.do())
		default:
			j.done(w, j.append(w))
		}
	}
}

// next returns the next work, or nil if there is none. end reports that the journal is closed
// and nothing is left.
func (j *Journal) next() (w *work, end bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		j.wanted, j.behind = j.closed, false
	}
	if len(j.queue) == 0 || !j.wanted {
		j.busy = time.Time{}
		return nil, j.closed
	}
	j.busy = time.Now()
	j.queue[0].taken = true
	return j.queue[0], false
}

// done removes the first work from the queue and records its result.
func (j *Journal) done(w *work, err error) {
	isDo := w.do != nil // read before unlocking: w is reused once the lock is released
	j.mu.Lock()
	j.queue[0] = nil
	if j.queue = j.queue[1:]; len(j.queue) == 0 {
		j.queue = j.room[:0] // a long queue's memory is released
	}
	if !isDo {
		j.wrote(w, err)
	}
	j.mu.Unlock()
	if isDo {
		w.done <- err
		return
	}
	select {
	case j.answered <- struct{}{}:
	default:
	}
}

// wrote records the result of writing lines. The caller must hold mu.
func (j *Journal) wrote(w *work, err error) {
	w.ended, w.err = true, err
	j.waiting -= len(w.lines)
	j.stats.Waiting -= w.count
	j.written = w.last
	if err == nil {
		j.stats.Appended += uint64(w.count)
	} else {
		j.stats.Failed += uint64(w.count)
		j.lost = cmp.Or(j.lost, err)
	}
	j.stats.Bytes = j.bytes()
	if len(j.spare) < 2 && cap(w.lines) <= 4*batchBytes {
		j.spare = append(j.spare, w)
	}
}

// append writes the lines of w, in a new segment if they don't fit in the current one.
func (j *Journal) append(w *work) error {
	if j.size > 0 && j.size+int64(len(w.lines)) > j.opts.SegmentBytes {
		if err := j.rotate(w); err != nil {
			return err
		}
	}
	n, err := j.file.Write(w.lines)
	if err != nil {
		// A partial line (disk full) would make the next one unreadable.
		if n > 0 {
			err = errors.Join(err, j.file.Truncate(j.size))
		}
		return err
	}
	j.size += int64(n)
	j.segments[len(j.segments)-1].size = j.size
	return nil
}

// rotate starts a new segment for the lines of w, and drops the oldest ones if needed. One that can't
// be removed no longer counts: the others keep the bound.
func (j *Journal) rotate(w *work) error {
	if err := j.begin(w.first); err != nil {
		return err
	}
	total := j.bytes()
	// Make room for the whole new segment now, so that the bound always holds.
	room := max(j.opts.SegmentBytes, int64(len(w.lines)))
	for len(j.segments) > 1 && total+room > j.opts.MaxBytes {
		oldest := j.segments[0]
		total -= oldest.size
		j.segments = j.segments[1:]
		if err := os.Remove(j.path(oldest.first)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.lose(fmt.Errorf("remove the oldest segment: %w", err))
			continue
		}
		j.mu.Lock()
		j.stats.DroppedSegments++
		j.mu.Unlock()
	}
	return nil
}

// bytes returns the size of all segments.
func (j *Journal) bytes() (total int64) {
	for _, s := range j.segments {
		total += s.size
	}
	return total
}
