package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Cancelled as the cause of a context ends a run for good. Any other cause interrupts the run: it
// resumes when it is executed again.
type Cancelled struct{ Reason string }

func (c *Cancelled) Error() string { return "cancelled: " + c.Reason }

// ErrActive is returned if the diagnosis is being executed already.
var ErrActive = errors.New("the diagnosis is already being executed")

// maxStarts bounds how often an operation is started again after the agent died while it ran: an
// operation that kills the agent (by its memory use, say) must not do so forever.
const maxStarts = 3

// execution is one call of Execute.
type execution struct {
	r       *Runner
	d       *Diagnosis
	store   store
	cp      *checkpoint
	run     *graph.Run
	dirty   bool  // the checkpoint has changes that are not on disk
	unsaved error // why the newest checkpoint could not be written
	waiting *Waiting
	running *Record
	log     *slog.Logger

	artifacts Artifacts
}

// Execute runs a diagnosis to its end, or as far as the gate and ctx allow, starting from its
// checkpoint. If the run has ended already, Execute only reports it again.
//
// The report is nil only if nothing could begin. Errors: d is invalid; [ErrActive]; a
// [*CheckpointError]; the cause of ctx if it interrupted the run. A run that fails, waits or is
// cancelled returns no error.
func (r *Runner) Execute(ctx context.Context, d *Diagnosis) (*Report, error) {
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("diagnosis %.140s: %w", d.ID, err)
	}
	if err := r.begin(d.ID); err != nil {
		return nil, fmt.Errorf("diagnosis %s: %w", d.ID, err)
	}
	defer r.end(d.ID)
	e := &execution{r: r, d: d, store: r.store(d.ID), log: r.c.Log.With("diagnosis", d.ID)}
	if err := e.open(); err != nil {
		return e.damaged(err), fmt.Errorf("diagnosis %s: %w", d.ID, err)
	}
	defer e.takeArtifacts().End()
	err := e.loop(ctx)
	e.flush()
	rep := e.report()
	r.c.Changed(rep)
	return rep, err
}

func (e *execution) takeArtifacts() Artifacts {
	var err error
	if e.artifacts, err = e.r.c.Artifacts(e.d.ID); err != nil {
		e.log.Warn("operations can't store artifacts", "error", err)
		e.artifacts = noArtifacts{}
	}
	return e.artifacts
}

func (r *Runner) begin(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[id] {
		return ErrActive
	}
	r.active[id] = true
	return nil
}

func (r *Runner) end(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, id)
}

// open loads the checkpoint, or creates one.
func (e *execution) open() error {
	cp, err := e.store.load()
	if err != nil {
		e.r.count(func(s *Stats) { s.Corrupt++ })
		if is[*statefile.NewerError](err) || e.mayRepair() {
			return err
		}
		// Begin again: the operations that ran can't have changed anything.
		e.log.Warn("can't read the checkpoint of the run: starting over", "error", err)
		if err := os.Rename(e.store.path, e.store.path+".damaged"); err != nil {
			e.log.Warn("can't keep the damaged checkpoint", "error", err)
		}
	}
	want := e.plan()
	if cp == nil {
		e.start(want)
		return nil
	}
	return e.resume(cp, want)
}

func (e *execution) start(p plan) {
	e.cp = &checkpoint{Plan: p, Started: time.Now()}
	e.run = graph.NewRun(e.d.Graph, e.d.repairs)
	e.save()
}

// resume continues from the checkpoint.
func (e *execution) resume(cp *checkpoint, want plan) error {
	want.Intended = cp.Plan.Intended // as it was when the run began
	same := equal(want, cp.Plan)
	if !same && len(cp.Records) == 0 && cp.Begun == nil && cp.Final == nil {
		e.start(want) // nothing has run yet
		return nil
	}
	if err := e.restore(cp); err != nil {
		return err
	}
	if cp.Final != nil {
		return nil
	}
	if !e.interruptedRepair() && !same {
		e.finish(v1alpha1.PhaseFailed, v1alpha1.ReasonOperationSetChanged, "the graph, an operation's effect or the parameters have changed since the run began")
	}
	return nil
}

// restore continues from a checkpoint: it replays the results that the checkpoint has.
func (e *execution) restore(cp *checkpoint) error {
	_, run, err := cp.replay()
	if err != nil {
		return &CheckpointError{e.store.path, err}
	}
	next, goesOn := run.Next()
	if b := cp.Begun; b != nil && (!goesOn || b.ID != next) {
		return &CheckpointError{e.store.path, fmt.Errorf("node %d was started, but it is not the next to run", b.ID)}
	}
	e.cp, e.run = cp, run
	return nil
}

// interruptedRepair reports whether the agent ended during a repair, and records it as Unknown.
func (e *execution) interruptedRepair() bool {
	b := e.cp.Begun
	if b == nil || !e.cp.Plan.repairs(b.ID) {
		return false
	}
	rec := e.newRecord(b.ID)
	rec.State, rec.Reason, rec.Start, rec.Attempts = v1alpha1.ResultUnknown, "Interrupted", b.At, 1
	rec.Message = "the agent ended while it ran; unknown whether it completed; not repeated"
	e.note(rec)
	return true
}

func (e *execution) plan() plan {
	p := plan{Effects: make([]operation.Effect, e.d.Graph.Len()), Parameters: e.d.Parameters, Intended: e.d.Intended}
	for id := range e.d.Graph.Len() {
		p.Nodes = append(p.Nodes, e.d.Graph.Node(id))
		if id > 0 {
			p.Effects[id] = e.d.Steps[id].Operation.Effect
		}
	}
	return p
}

// equal reports whether two plans have the same form on disk.
func equal(a, b plan) bool {
	rawA, _ := json.Marshal(a) // texts and numbers always have one
	rawB, _ := json.Marshal(b)
	return bytes.Equal(rawA, rawB)
}

// mayRepair reports whether the run may have made a repair, judged without its checkpoint.
func (e *execution) mayRepair() bool {
	if e.d.MayRepair {
		return true
	}
	for id := 1; id < e.d.Graph.Len(); id++ {
		if e.d.repairs(id) {
			return true
		}
	}
	return false
}

// loop runs one node after the other.
func (e *execution) loop(ctx context.Context) error {
	for e.cp.Final == nil && e.waiting == nil {
		id, ok := e.run.Next()
		if !ok {
			e.finish(ended(e.run.Result()))
			break
		}
		if cause := context.Cause(ctx); cause != nil {
			cancelled, ok := errors.AsType[*Cancelled](cause)
			if !ok {
				return fmt.Errorf("diagnosis %s: interrupted: %w", e.d.ID, cause)
			}
			e.finish(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, oneLine(cancelled.Reason))
			break
		}
		e.node(ctx, id)
	}
	return nil
}

// ended returns the phase, reason and message of a run that has ended.
func ended(res graph.Result) (v1alpha1.Phase, string, string) {
	switch res.End {
	case graph.PathSucceeded:
		if res.Withheld != 0 {
			return v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, fmt.Sprintf("without the repair of node %d, which was not made", res.Withheld)
		}
		return v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, ""
	case graph.StoppedAfterRepair:
		return v1alpha1.PhaseFailed, v1alpha1.ReasonRemediationIncomplete,
			fmt.Sprintf("node %d made a repair, but a later node of its path failed; no other path is tried", res.Repaired)
	case graph.OutcomeUnknown:
		return v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown,
			fmt.Sprintf("unknown whether the repair of node %d was made: check by hand", res.Path[len(res.Path)-1])
	default:
		return v1alpha1.PhaseFailed, v1alpha1.ReasonNoPathSucceeded, fmt.Sprintf("paths that failed: %s", res.FailedCount)
	}
}

func (e *execution) finish(p v1alpha1.Phase, reason, message string) {
	e.cp.Final = &End{Phase: p, Reason: reason, Message: message, At: time.Now()}
	e.cp.Begun = nil
	e.save()
	e.r.c.Fault(StageEnded)
}

// flush writes pending changes.
func (e *execution) flush() {
	if e.dirty || e.unsaved != nil {
		e.save()
	}
}

// save writes the checkpoint. On failure it keeps the error in e.unsaved.
func (e *execution) save() {
	e.dirty = false
	err := e.store.save(e.cp)
	if err != nil {
		e.r.count(func(s *Stats) { s.Unsaved++ })
		if e.unsaved == nil {
			e.log.Warn("checkpoint not written: a restart will resume from an older one, and repairs are withheld", "error", err)
		}
	}
	e.unsaved = err
}

// record returns the record of a node; nil if the node has not run.
func (e *execution) record(id int) *Record {
	for i := range e.cp.Records {
		if e.cp.Records[i].ID == id {
			return &e.cp.Records[i]
		}
	}
	return nil
}
