package events

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Sink sends Events to the cluster. Add, Flush and Stats are safe for concurrent use;
// Run is called once.
type Sink struct {
	cfg  Config
	feed *Feed
	file statefile.File
	api  writer
	poke chan struct{} // wakes the sender

	mu     sync.Mutex
	table  *table
	out    outage
	stats  Stats
	change bool // the state has changed since it was saved
	// caught: all entries from before the start are in the table. Until then its counts may be
	// lower than those that an earlier process has sent.
	caught bool

	// Used only by the goroutine that folds.
	seq, saved uint64
	damaged    bool // the journal could not be read, and that was logged
}

// New returns a Sink that continues where the last one ended, even if that was killed. If there
// was none, it begins after the journal's latest entry.
func New(cfg Config) (*Sink, error) {
	if cfg.Node == "" || cfg.Dir == "" || cfg.JournalDir == "" || cfg.Client == nil || cfg.Pods == nil || cfg.Log == nil {
		return nil, errors.New("events: node, client, pods, folders and log are needed")
	}
	k := &Sink{cfg: cfg.withDefaults(), poke: make(chan struct{}, 1), api: clientWriter{cfg.Client}, stats: Stats{Requests: map[conditions.Outcome]uint64{}}}
	k.file = statefile.File{Path: filepath.Join(cfg.Dir, StateFile), Durable: true, Written: func() { k.cfg.Fault(StageWritten) }}
	k.table = newTable()
	k.table.idle = k.cfg.Idle
	var st state
	found, err := k.file.Load(stateVersion, &st)
	switch {
	case err == nil && found && st.Node != cfg.Node:
		k.cfg.Log.Warn("the saved state of Events belongs to another node; starting over", "node", st.Node)
		found = false
	case err == nil && found:
		if err = k.table.load(&st); err != nil {
			err = errors.Join(err, k.file.SetAside())
		}
	}
	if err != nil {
		// Sending the whole journal again could duplicate Events, because it is unknown which
		// were sent.
		k.cfg.Log.Error("can't read the saved state of Events; starting over", "error", err)
		k.table, found = newTable(), false
		k.table.idle = k.cfg.Idle
	}
	// After a power failure the journal may be behind the state, and will reuse numbers that the
	// state already contains.
	k.seq = cfg.JournalSeq
	if found {
		k.seq = min(st.Seq, cfg.JournalSeq)
	}
	k.feed = NewFeed(cfg.JournalDir, k.seq, cfg.JournalWritten)
	k.saved = k.seq
	if !found {
		// A kill before the first save must not lose entries from now on.
		_ = k.save(time.Now()) // an error is logged, and the next save tries again
	}
	return k, nil
}

// Add adds an entry that the journal was given, in order, for the next Flush, like [Feed.Add].
func (k *Sink) Add(e journal.Entry) { k.feed.Add(e) }

// Flush sends the added entries, like [Feed.Flush].
func (k *Sink) Flush(seq uint64) { k.feed.Flush(seq) }

// Run sends until ctx ends. Then it sends pending counts, for a short time, and saves its state.
func (k *Sink) Run(ctx context.Context) error {
	var sending sync.WaitGroup
	sending.Go(func() { k.send(ctx) })
	tick := time.NewTicker(k.cfg.SaveEvery)
	defer tick.Stop()
	var saved <-chan saveResult // of the save in progress; nil: none
	for ctx.Err() == nil {
		k.drain()
		select {
		case <-ctx.Done():
		case <-k.feed.Wake():
		case r := <-saved:
			saved = nil
			if k.saveEnded(r) {
				saved = k.startSave(time.Now())
			}
		case now := <-tick.C:
			k.drain() // entries that could not be read before
			if saved == nil && k.needsSave(now) {
				saved = k.startSave(now)
			}
		}
	}
	sending.Wait()
	k.drain()
	k.flush(context.WithoutCancel(ctx))
	if saved != nil {
		k.saveEnded(<-saved)
	}
	if err := k.save(time.Now()); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	return nil
}

func (k *Sink) drain() {
	seq, lost, err := k.feed.Drain(func(it Item) {
		k.mu.Lock()
		k.table.fold(&it)
		k.change = true
		k.mu.Unlock()
		k.cfg.Fault(StageFolded)
		k.wakeSender()
	})
	k.seq = seq
	if lost > 0 {
		k.mu.Lock()
		k.table.lost += lost
		k.change = true
		k.mu.Unlock()
		k.cfg.Log.Warn("journal entries were lost before their Events could be created", "entries", lost)
	}
	if err != nil && !k.damaged {
		k.cfg.Log.Error("can't read the journal; Events are delayed", "error", err)
	}
	k.damaged = err != nil
	if err == nil && !k.caught {
		k.mu.Lock()
		k.caught = true
		k.mu.Unlock()
		k.wakeSender()
	}
}

func (k *Sink) wakeSender() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}
