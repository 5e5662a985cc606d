package runner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Config configures a [Runner].
type Config struct {
	Dir string // for checkpoints only; created if missing
	// Gate decides on repairs. If nil, no repair runs, and each is recorded as WouldRun.
	Gate Gate
	// Intent is called with an allowed repair before it begins. It records the repair outside of
	// the node; if it returns an error, the run waits. It may be called again for a repair that has
	// not begun. If nil, only the checkpoint records the repair.
	Intent func(ctx context.Context, a *Action) error
	// Artifacts is called when a diagnosis begins or resumes, and returns where its operations
	// write files. If it is nil or fails, they can't write any.
	Artifacts func(diagnosis string) (Artifacts, error)
	// Changed is called with each new state of a run, by the goroutine that executes it.
	Changed func(*Report)
	Log     *slog.Logger
	// Fault is called between two effects that a kill can separate; for tests.
	Fault func(Stage)
}

// Artifacts stores the files of one diagnosis while it is executed.
type Artifacts interface {
	// Of returns the artifacts of one node of the graph, in the folder that its step names. It
	// returns an error if files can't be stored there.
	Of(id int, folder string) (operation.Artifacts, error)
	End() // no more files are written
}

// Stage is a point in a run, between two effects that a kill can separate.
type Stage string

// Stages, in the order of a node's run.
const (
	StageAllowed  Stage = "allowed"  // the gate has allowed a repair
	StageIntended Stage = "intended" // the intent is recorded
	StageWritten  Stage = "written"  // the new checkpoint is on disk beside the old one
	StageSaved    Stage = "saved"    // the new checkpoint has replaced the old one
	StageBegun    Stage = "begun"    // the checkpoint records that the operation begins
	StageRan      Stage = "ran"      // the operation has ended, and nothing is recorded yet
	StageNoted    Stage = "noted"    // the outcome is recorded; that of a repair is on disk
	StageEnded    Stage = "ended"    // the checkpoint records that the run has ended
)

// Runner executes the diagnoses of a node. Its methods may be called by several goroutines at once.
type Runner struct {
	c         Config
	abandoned atomic.Int64
	repairing chan struct{} // has a value while a repair runs: there is one at a time

	mu     sync.Mutex
	active map[string]bool // IDs that are being executed
	stats  Stats
}

// Stats counts what a [Runner] has done since it was made.
type Stats struct {
	Operations map[string]uint64 // completed node runs, by state
	Unsaved    uint64            // checkpoints that could not be written
	Corrupt    uint64            // checkpoints that could not be read
	Abandoned  uint64            // operations abandoned so far
	Hanging    int64             // abandoned operations that are still running
}

// New returns a Runner.
func New(c Config) (*Runner, error) {
	if c.Dir == "" {
		return nil, errors.New("runner: no folder for checkpoints")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Gate == nil {
		c.Gate = observer{}
	}
	if c.Fault == nil {
		c.Fault = func(Stage) {}
	}
	if c.Changed == nil {
		c.Changed = func(*Report) {}
	}
	if c.Intent == nil {
		c.Intent = func(context.Context, *Action) error { return nil }
	}
	if c.Artifacts == nil {
		c.Artifacts = func(string) (Artifacts, error) { return noArtifacts{}, nil }
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		// A node with a read-only disk particularly needs a diagnosis.
		c.Log.Warn("no folder for checkpoints: a restart will start diagnoses over, and repairs are withheld", "error", err)
	}
	return &Runner{
		c: c, repairing: make(chan struct{}, 1), active: map[string]bool{}, stats: Stats{Operations: map[string]uint64{}},
	}, nil
}

// Stats returns what the runner has done so far.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Operations = maps.Clone(r.stats.Operations)
	s.Hanging = r.abandoned.Load()
	return s
}

func (r *Runner) count(f func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.stats)
}

// observer is the default gate. It allows no repair.
type observer struct{}

func (observer) Allow(context.Context, *Action) (Decision, error) {
	return Decision{Verb: v1alpha1.RemediationWouldRun, Reason: "NoPolicy", Message: "no remediation policy"}, nil
}
