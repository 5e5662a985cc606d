package events

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// Item is what a sender gets of one journal entry.
type Item struct {
	Seq uint64 // of the entry; 0: the journal could not take it
	Now time.Time
	// Kernel says that the entry's event is a kernel's record, so that its time is
	// the kernel's.
	Kernel      bool
	Transitions []problem.Transition
	// Event is the entry's, where one of the transitions reports a problem that fires;
	// nil: else, or there is none. It is shared and must not be changed.
	Event *event.Event
}

// MaxQueue bounds the entries that wait in memory, each of some hundred bytes and
// its messages. What comes beyond it is read from the journal's files when its turn
// comes.
const MaxQueue = 1024

// Feed hands on the entries of a journal that have transitions, in order, each
// once. [Feed.Add] and [Feed.Flush] may be called from any goroutine, [Feed.Drain] from one at a
// time.
type Feed struct {
	dir     string
	written func() uint64
	wake    chan struct{}

	mu      sync.Mutex
	queue   []Item
	ready   int    // so many of the queue may be drained
	added   uint64 // the newest entry that Add has seen
	last    uint64 // the newest one that Flush has seen
	missing bool   // entries up to last are in the journal only
	lost    uint64 // entries without a number that found no room

	// Drain's own.
	seq   uint64
	spare []Item
}

// NewFeed returns a Feed of the journal in dir that begins behind the entry of
// sequence number after. What the journal holds already is handed on first. written
// returns up to which number no entry waits to be in the files ([journal.Journal.Written]);
// nil: none ever waits.
func NewFeed(dir string, after uint64, written func() uint64) *Feed {
	if written == nil {
		written = func() uint64 { return math.MaxUint64 }
	}
	return &Feed{dir: dir, written: written, wake: make(chan struct{}, 1), added: after, last: after, seq: after, missing: true}
}

// Add takes an entry that the journal was given, and hands it on at the next Flush. It does
// not block and keeps none of the entry's memory but the problems and conditions that its
// transitions point to; of the event of a problem that fires it keeps a copy.
func (f *Feed) Add(e journal.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Seq > f.added {
		f.missing = f.missing || e.Seq > f.added+1
		f.added = e.Seq
	}
	switch {
	case len(e.Transitions) == 0:
	case e.Seq == 0 && len(f.queue) == MaxQueue:
		f.lost++
	case e.Seq == 0 || !f.missing && len(f.queue) < MaxQueue:
		f.queue = append(f.queue, Item{
			Seq: e.Seq, Now: e.Now, Transitions: slices.Clone(e.Transitions),
			Kernel: e.Event != nil && e.Event.CPU != event.NoCPU, Event: evidence(&e),
		})
	default:
		f.missing = true
	}
}

// Flush hands on what was added: it is in the journal's files, or waits for a disk that
// hangs. Entries with numbers above seq are lost from the journal.
func (f *Feed) Flush(seq uint64) {
	f.mu.Lock()
	for i := f.ready; i < len(f.queue); i++ {
		if f.queue[i].Seq > seq {
			f.queue[i].Seq = 0
		}
	}
	f.ready = len(f.queue)
	f.last = max(f.last, seq)
	f.added = f.last // numbers of lost ones are given again
	wake := f.ready > 0 || f.missing
	f.mu.Unlock()
	if wake {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// Wake is reported when there is something to drain.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Drain calls fold for each entry that has come, and returns the sequence number
// up to which it has, and how many entries are lost: dropped from the journal
// before they could be read, or never in it and without room here.
func (f *Feed) Drain(fold func(Item)) (seq, lost uint64, err error) {
	f.mu.Lock()
	batch, missing, last := f.queue[:f.ready], f.missing, f.last
	f.queue, f.missing, f.ready = append(f.spare[:0], f.queue[f.ready:]...), false, 0
	lost, f.lost = f.lost, 0
	f.mu.Unlock()

	for _, it := range batch {
		if it.Seq != 0 && it.Seq <= f.seq {
			continue // read from the files before
		}
		fold(it)
		f.seq = max(f.seq, it.Seq)
	}
	clear(batch)
	f.spare = batch[:0]
	if missing {
		written := f.written()
		n, err := f.read(fold)
		lost += n
		if err != nil {
			f.mu.Lock()
			f.missing = true
			f.mu.Unlock()
			return f.seq, lost, err
		}
		// What neither waits to be in the files nor is there is gone.
		if gone := min(last, written); gone > f.seq {
			lost += gone - f.seq
			f.seq = gone
		}
		if last > f.seq {
			f.mu.Lock()
			f.missing = true
			f.mu.Unlock()
			return f.seq, lost, nil
		}
	}
	// The numbers of entries that a kill may still take are given again.
	f.seq = max(f.seq, min(last, f.written()))
	return f.seq, lost, nil
}

// read folds what the journal's files have behind f.seq.
func (f *Feed) read(fold func(Item)) (lost uint64, err error) {
	// Damaged lines show as gaps between the numbers.
	_, err = journal.Read(f.dir, f.seq, func(e journal.Entry) error {
		if e.Seq > f.seq { // else two agents have given the number, of one folder
			lost += e.Seq - f.seq - 1
			f.seq = e.Seq
		}
		if len(e.Transitions) > 0 {
			fold(Item{
				Seq: e.Seq, Now: e.Now, Transitions: e.Transitions,
				Kernel: e.Event != nil && e.Event.CPU != event.NoCPU, Event: evidence(&e),
			})
		}
		return nil
	})
	if err != nil {
		return lost, fmt.Errorf("catch up with the journal: %w", err)
	}
	return lost, nil
}

// evidence returns a copy of the event that makes a problem fire. Its source may use the
// original again.
func evidence(e *journal.Entry) *event.Event {
	if e.Event == nil {
		return nil
	}
	for i := range e.Transitions {
		if p := e.Transitions[i].Problem; p != nil && p.State == problem.Firing {
			return e.Event.Clone()
		}
	}
	return nil
}
