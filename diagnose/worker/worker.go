package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Worker creates and runs the Diagnoses of one node. Its methods may be called by several
// goroutines at once. A nil Worker is disabled: its methods do nothing.
type Worker struct {
	c      Config
	log    *slog.Logger
	ledger ledger
	gate   *gate

	latency prometheus.Histogram // from a problem to the end of its diagnosis

	moved    chan struct{} // wakes manage: there is something to do
	reported chan struct{} // wakes report: there is something to report

	mu        sync.Mutex
	engine    *trigger.Engine
	installed bool
	restored  bool          // the triggers remember what was made of what is replayed
	heard     bool          // the store has synced since Run began
	started   time.Time     // when Run began; zero: it has not
	waiting   []observation // for triggers and pods
	entries   map[string]*entry
	names     map[types.NamespacedName]string // id of the newest entry of a name, or the one that is not Gone
	problems  map[problemKey][]*entry
	outside   map[types.NamespacedName]*outside // they wait for a slot
	refused   map[string]string                 // ignored triggers, and why
	stats     Stats                             // counters; [Worker.Stats] adds the gauges
	holder    string
	away      time.Duration // current pause while the store is away; 0: it answers
	awayUntil time.Time

	// Set by Run.
	runner    *runner.Runner
	pool      *runner.Pool
	artifacts *artifact.Store // nil: none can be kept
}

// New returns a worker with the Diagnoses in the ledger. It runs nothing before [Worker.Run].
func New(c Config) (*Worker, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	engine, err := trigger.NewEngine(trigger.Config{Node: c.Node, Namespace: c.Namespace})
	if err != nil {
		return nil, err
	}
	w := &Worker{
		c: c, log: c.Log, engine: engine, ledger: ledger{dir: filepath.Join(c.Dir, takenDir)},
		moved: make(chan struct{}, 1), reported: make(chan struct{}, 1),
		entries: map[string]*entry{}, names: map[types.NamespacedName]string{}, problems: map[problemKey][]*entry{},
		outside: map[types.NamespacedName]*outside{}, refused: map[string]string{}, latency: newLatency(),
		stats: Stats{Dropped: map[string]uint64{}, Ended: map[v1alpha1.Phase]uint64{}, Writes: map[string]uint64{}},
	}
	w.gate = &gate{w}
	all, damaged := w.ledger.load()
	slices.SortFunc(all, func(a, b *saved) int { return a.Taken.Compare(b.Taken) })
	for _, err := range damaged {
		w.stats.Damaged++
		w.log.Warn("can't read a queued diagnosis", "error", err)
	}
	for _, s := range all {
		e := w.add(s)
		e.changed(true) // changes since the last report are not known
		if s.End != nil && s.Reported {
			e.written = e.version
		}
	}
	return w, nil
}

// add adds an entry. The caller holds the lock, or is the only one that has the worker.
func (w *Worker) add(s *saved) *entry {
	e := &entry{saved: *s}
	w.entries[s.ID] = e
	if old := w.byName(e.name()); old == nil || old.Gone || !s.Gone {
		w.names[e.name()] = s.ID
	}
	if s.Problem != nil {
		key := problemKey{s.Problem.Rule, s.Problem.Group}
		w.problems[key] = append(w.problems[key], e)
	}
	return e
}

// Run runs Diagnoses and reports them to the store until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	unlock, err := w.lock(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	defer unlock()
	if err := w.begin(); err != nil {
		return err
	}
	if w.artifacts != nil {
		defer w.artifacts.Close()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.c.Store.Run(ctx, handler{w}) })
	g.Go(func() error { w.pool.Run(ctx); return nil })
	g.Go(func() error { w.manage(ctx); return nil })
	g.Go(func() error { w.report(ctx); return nil })
	err = g.Wait()
	w.persist() // the last changes
	return err
}

// Holder returns the name under which this worker holds Diagnoses in their checkpoints; empty: it
// is not running.
func (w *Worker) Holder() string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holder
}

// lockAgain is how often a locked folder is tried again.
const lockAgain = time.Second

// lock blocks until no other process has locked the folder. If the disk can't be written, no other
// process can use it either, and the worker runs without a lock, because such a disk needs a
// diagnosis.
func (w *Worker) lock(ctx context.Context) (unlock func(), err error) {
	for reported := false; ; {
		unlock, err = Lock(w.c.Dir, Agent)
		_, locked := errors.AsType[*LockedError](err)
		switch {
		case err == nil:
			return unlock, nil
		case !locked:
			w.log.Warn("diagnoses run without a lock on their folder", "error", err)
			return func() {}, nil
		case !reported:
			reported = true
			w.log.Warn("diagnoses are waiting for another process to end", "error", err)
		}
		select {
		case <-time.After(lockAgain):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// begin opens what runs need.
func (w *Worker) begin() error {
	holder, err := identity(w.c.Dir, w.c.Node)
	if err != nil {
		w.log.Warn("can't save this agent's identity: after a restart the agent gets a new one", "error", err)
	}
	bounds := w.c.Artifacts
	bounds.Dir = Artifacts(w.c.Dir)
	bounds.Storage = cmp.Or(bounds.Storage, Storage(w.c.Dir))
	bounds.Open = w.notEnded
	store, err := artifact.Open(bounds, w.log)
	if err != nil {
		w.log.Warn("operations can't store artifacts", "error", err)
		store = nil
	}
	runs, err := runner.New(runner.Config{
		Dir: Checkpoints(w.c.Dir), Gate: w.gate, Intent: w.gate.intent, Changed: w.changed, Log: w.log,
		Artifacts: func(id string) (runner.Artifacts, error) {
			if store == nil {
				return nil, errors.New("there is no folder for artifacts")
			}
			return store.Begin(id)
		},
	})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	w.recall()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holder, w.runner, w.artifacts, w.started = holder, runs, store, time.Now()
	w.pool = runner.NewPool(runner.PoolConfig{Workers: w.c.Workers, Queue: kindsOfPlaces * w.c.MaxOpen, Execute: w.runner.Execute, Done: w.ran})
	return nil
}

// notEnded reports whether a run has not ended: it waits or runs.
func (w *Worker) notEnded(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[id]
	return e != nil && e.End == nil && !e.Gone
}

// recall reads the reports of ended runs whose end is not reported. It reads the disk without the
// lock: ended entries do not change before the worker manages them.
func (w *Worker) recall() {
	for _, e := range w.all() {
		w.mu.Lock()
		wanted := e.End != nil && e.End.Ran && e.open()
		w.mu.Unlock()
		if !wanted {
			continue
		}
		kept, err := runner.ReadSaved(Checkpoints(w.c.Dir), e.ID)
		if err != nil {
			w.log.Warn("results of a run were removed before they were reported", "diagnosis", e.ID, "error", err)
			continue
		}
		w.mu.Lock()
		e.report = kept.Report
		w.mu.Unlock()
	}
}

// wake signals a channel without blocking.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // already signalled
	}
}

func (w *Worker) wakeBoth() {
	wake(w.moved)
	wake(w.reported)
}
