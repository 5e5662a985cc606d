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

// Item is the part of a journal entry that a sender gets.
type Item struct {
	Seq uint64 // of the entry; 0: it is not in the journal
	Now time.Time
	// Kernel: the entry's event is a kernel record, so its time is the kernel's.
	Kernel      bool
	Transitions []problem.Transition
	// Event is the entry's event if one of the transitions reports a firing problem, else nil. It
	// is shared and must not be changed.
	Event *event.Event
}

// MaxQueue bounds the entries that wait in memory, each of some hundred bytes plus its messages.
// Further entries are read from the journal's files when their turn comes.
const MaxQueue = 1024

// Feed delivers the entries of a journal that have transitions, in order, each once. [Feed.Add]
// and [Feed.Flush] are safe for concurrent use; [Feed.Drain] must not be called concurrently.
type Feed struct {
	dir     string
	written func() uint64
	wake    chan struct{}

	mu      sync.Mutex
	queue   []Item
	ready   int    // number of entries in queue that may be drained
	added   uint64 // the newest entry that Add has seen
	last    uint64 // the newest one that Flush has seen
	missing bool   // entries up to last are in the journal only
	lost    uint64 // entries without a number that found no room

	// Used only by Drain.
	seq   uint64
	spare []Item
}

// NewFeed returns a Feed of the journal in dir that begins after the entry with sequence number
// after. It delivers what the journal already has first. written returns the number up to which
// all entries are in the files ([journal.Journal.Written]). It may be nil if entries never wait.
func NewFeed(dir string, after uint64, written func() uint64) *Feed {
	if written == nil {
		written = func() uint64 { return math.MaxUint64 }
	}
	return &Feed{dir: dir, written: written, wake: make(chan struct{}, 1), added: after, last: after, seq: after, missing: true}
}

// Add adds an entry that the journal was given; the next Flush makes it available. It does not
// block. Of the entry it keeps only the problems and conditions that its transitions point to,
// and a copy of the event of a firing problem.
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
		it := itemOf(&e)
		it.Transitions = slices.Clone(it.Transitions)
		f.queue = append(f.queue, it)
	default:
		f.missing = true
	}
}

// Flush makes the added entries available: they are in the journal's files, or wait for a hanging
// disk. Entries with numbers above seq are lost from the journal.
func (f *Feed) Flush(seq uint64) {
	f.mu.Lock()
	for i := f.ready; i < len(f.queue); i++ {
		if f.queue[i].Seq > seq {
			f.queue[i].Seq = 0
		}
	}
	f.ready = len(f.queue)
	f.last = max(f.last, seq)
	f.added = f.last // numbers of lost entries are used again
	wake := f.ready > 0 || f.missing
	f.mu.Unlock()
	if wake {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// Wake returns a channel that receives when there is something to drain.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Drain calls fold for each available entry. It returns the sequence number of the last one, and how
// many entries are lost: entries dropped from the journal before they could be read, or entries that
// were never in the journal and for which the Feed had no room.
func (f *Feed) Drain(fold func(Item)) (seq, lost uint64, err error) {
	f.mu.Lock()
	batch, missing, last := f.queue[:f.ready], f.missing, f.last
	f.queue, f.missing, f.ready = append(f.spare[:0], f.queue[f.ready:]...), false, 0
	lost, f.lost = f.lost, 0
	f.mu.Unlock()

	for _, it := range batch {
		if it.Seq != 0 && it.Seq <= f.seq {
			continue // already read from the files
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
		// Entries that neither wait nor are in the files are gone.
		if gone := min(last, written); err == nil && gone > f.seq {
			lost += gone - f.seq
			f.seq = gone
		}
		if err != nil || last > f.seq {
			f.mu.Lock()
			f.missing = true
			f.mu.Unlock()
			return f.seq, lost, err
		}
	}
	// Numbers of entries that a kill may still lose are used again.
	f.seq = max(f.seq, min(last, f.written()))
	return f.seq, lost, nil
}

// read folds the entries in the journal's files after f.seq.
func (f *Feed) read(fold func(Item)) (lost uint64, err error) {
	// Damaged lines show as gaps between the numbers.
	_, err = journal.Read(f.dir, f.seq, func(e journal.Entry) error {
		if e.Seq > f.seq { // otherwise two agents that share a folder have used the number
			lost += e.Seq - f.seq - 1
			f.seq = e.Seq
		}
		if len(e.Transitions) > 0 {
			fold(itemOf(&e))
		}
		return nil
	})
	if err != nil {
		return lost, fmt.Errorf("catch up with the journal: %w", err)
	}
	return lost, nil
}

// itemOf returns the part of an entry that a sender gets. It copies the event, because the source may
// reuse the original.
func itemOf(e *journal.Entry) Item {
	it := Item{Seq: e.Seq, Now: e.Now, Transitions: e.Transitions, Kernel: e.Event != nil && e.Event.CPU != event.NoCPU}
	fires := func(t problem.Transition) bool { return t.Problem != nil && t.Problem.State == problem.Firing }
	if e.Event != nil && slices.ContainsFunc(e.Transitions, fires) {
		it.Event = e.Event.Clone()
	}
	return it
}
