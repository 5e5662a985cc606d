package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// node runs the node id, which is the next one.
func (e *execution) node(ctx context.Context, id int) {
	rec := e.newRecord(id)
	rec.Start = time.Now()
	starts := 0
	if b := e.cp.Begun; b != nil {
		starts, rec.Start = b.Starts, b.At
	}
	if starts >= maxStarts {
		rec.State, rec.Reason = v1alpha1.ResultFailed, "Interrupted"
		rec.Message = fmt.Sprintf("the agent ended %d times while it ran", starts)
		e.note(rec)
		return
	}
	artifacts, err := e.artifacts.Of(id, e.d.Steps[id].Folder)
	if err != nil {
		rec.State, rec.Reason, rec.Message = v1alpha1.ResultFailed, "StorageRefused", oneLine(storageField+": "+err.Error())
		e.note(rec)
		return
	}
	if e.d.repairs(id) {
		e.flush() // the gate may take its time
		select {
		case e.r.repairing <- struct{}{}:
			defer func() { <-e.r.repairing }()
		case <-ctx.Done():
			return // the loop sees it, and why
		}
		if !e.allowed(ctx, rec) {
			return
		}
		rec.Start = time.Now() // the wait before does not count as the repair's time
	}
	e.cp.Begun, e.cp.Waiting = &begun{ID: id, Starts: starts + 1, At: rec.Start}, nil
	e.running = rec
	e.save()
	if e.unsaved != nil && e.d.repairs(id) {
		e.withhold(rec)
		return
	}
	e.r.c.Fault(StageBegun)
	e.r.c.Changed(e.report())
	e.operate(ctx, rec, artifacts)
}

// withhold records that a repair is not made, because the checkpoint before it could not be
// written.
func (e *execution) withhold(rec *Record) {
	rec.State, rec.Reason = v1alpha1.ResultWithheld, "NoCheckpoint"
	rec.Message = oneLine("repair not made: its checkpoint could not be written: " + e.unsaved.Error())
	e.note(rec)
}

// newRecord returns a record with the fields that are known before the node runs.
func (e *execution) newRecord(id int) *Record {
	return &Record{ID: id, Operation: e.cp.Plan.Nodes[id].Operation, Repairs: e.cp.Plan.repairs(id)}
}

// operate runs the operation and records its outcome.
func (e *execution) operate(ctx context.Context, rec *Record, artifacts operation.Artifacts) {
	step := &e.d.Steps[rec.ID]
	began := time.Now()
	out, tries, err := e.r.attempt(ctx, step, func() *Inputs { return e.inputs(rec.ID, artifacts) })
	e.r.c.Fault(StageRan)
	rec.Duration, rec.Attempts = time.Since(began), tries
	if err != nil && ctx.Err() != nil && step.Operation.Effect != operation.Remediate && interrupted(ctx, err) {
		// The operation is not at fault: it runs again, or the run is cancelled.
		e.cp.Begun, e.running = nil, nil
		e.save()
		return
	}
	judge(rec, step.Operation.Effect, out, err, ctx.Err() != nil)
	if step.Folder != "" {
		e.keep(rec, out, artifacts)
	}
	e.note(rec)
}

// storageField is the API field that configures a step's folder; for messages.
const storageField = "spec.storage.hostPath.path"

// keep writes the node's record, with all of its results, into its operation's folder. The run does
// not depend on it: a failure is logged and added to the record's message.
func (e *execution) keep(rec *Record, out operation.Output, artifacts operation.Artifacts) {
	whole := *rec
	whole.Results, whole.Truncated = out.Results, out.Truncated
	f, err := artifacts.Create("results.json")
	if err == nil {
		to := json.NewEncoder(f)
		to.SetEscapeHTML(false)
		to.SetIndent("", "  ")
		err = errors.Join(to.Encode(&whole), f.Close())
	}
	if err != nil {
		e.log.Warn("can't store results", "id", rec.ID, "operation", rec.Operation, "error", err)
		rec.Message = oneLine(strings.TrimPrefix(rec.Message+"; can't store results: "+err.Error(), "; "))
	}
}

// interrupted reports whether an error comes from the run's context, not from the operation.
func interrupted(ctx context.Context, err error) bool {
	return !is[*operation.Refuted](err) && !is[*panicked](err) && errors.Is(err, context.Cause(ctx))
}

// judge sets a node's state, reason and message. stopped: the run was interrupted or cancelled.
func judge(rec *Record, effect operation.Effect, out operation.Output, err error, stopped bool) {
	rec.Results, rec.Truncated = bound(out.Results)
	rec.Truncated = rec.Truncated || out.Truncated
	if out.Verdict != nil {
		rec.Verdict = &operation.Verdict{Reason: word(out.Verdict.Reason, "Unnamed"), Message: oneLine(out.Verdict.Message)}
	}
	if err == nil {
		rec.State = v1alpha1.ResultSucceeded
		if v := rec.Verdict; v != nil {
			rec.Reason, rec.Message = v.Reason, v.Message
		}
		return
	}
	rec.Verdict = nil
	if refuted, ok := errors.AsType[*operation.Refuted](err); ok {
		rec.State, rec.Reason, rec.Message = v1alpha1.ResultRefuted, word(refuted.Reason, "Refuted"), oneLine(refuted.Message)
		return
	}
	// errors.Join puts one error a line.
	rec.State, rec.Message = v1alpha1.ResultFailed, oneLine(strings.ReplaceAll(err.Error(), "\n", "; "))
	switch {
	case is[*left](err):
		rec.Reason = "DidNotEnd"
	case is[*timedOut](err):
		rec.Reason = "TimedOut"
	case is[*panicked](err):
		rec.Reason = "Panicked"
	case errors.Is(err, errHanging):
		rec.Reason = "OperationsHang"
		return // it was not started
	case stopped:
		rec.Reason = "Interrupted"
	case effect == operation.Remediate && is[*operation.OutcomeUnknown](err):
		rec.Reason = v1alpha1.ReasonOutcomeUnknown
	default:
		rec.Reason = "Failed"
		return // the repair itself reports that it failed
	}
	if effect == operation.Remediate {
		rec.State = v1alpha1.ResultUnknown
	}
}

// note adds a node's outcome to the checkpoint and the state machine. The outcome of a repair is on
// disk when note returns. Other outcomes are written with the next change, which follows at once.
// If they are lost, the operations run again, which is harmless.
func (e *execution) note(rec *Record) {
	e.running = nil
	e.cp.Begun, e.cp.Waiting = nil, nil
	e.cp.Records = append(e.cp.Records, *rec)
	if err := e.run.Done(rec.ID, rec.outcome()); err != nil {
		panic(fmt.Sprintf("runner: %v", err)) // the node is the one that Next returned
	}
	e.r.count(func(s *Stats) { s.Operations[string(rec.State)]++ })
	e.log.Debug("operation ended", "id", rec.ID, "operation", rec.Operation, "state", string(rec.State), "reason", rec.Reason, "duration", rec.Duration)
	e.dirty = true
	if rec.Repairs {
		e.save()
	}
	e.r.c.Fault(StageNoted)
}

// gateTimeout bounds the calls of the gate and of Intent together. During the calls the run
// occupies a worker; after the timeout it waits without a worker.
const gateTimeout = 30 * time.Second

// allowed asks the gate and records the intent. If the repair must not begin now, it records why,
// or lets the run wait, and returns false.
func (e *execution) allowed(ctx context.Context, rec *Record) bool {
	if slices.Contains(e.cp.Plan.Intended, rec.ID) {
		rec.State, rec.Reason = v1alpha1.ResultUnknown, "Interrupted"
		rec.Message = "an earlier run of this diagnosis intended to make this repair, but its checkpoint is gone; not repeated"
		e.note(rec)
		return false
	}
	if e.unsaved != nil { // a run that waits now would begin anew
		e.withhold(rec)
		return false
	}
	a := &Action{Diagnosis: e.d.ID, ID: rec.ID, Operation: rec.Operation, Started: e.cp.Started}
	asking, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	d, err := e.r.c.Gate.Allow(asking, a)
	if ctx.Err() != nil {
		return false // the answer does not matter: the loop handles the cause
	}
	if err != nil {
		d = Decision{Verb: v1alpha1.RemediationWait, Reason: ReasonGateFailed, Message: err.Error()}
	}
	switch {
	case d.Verb == v1alpha1.RemediationRun && !d.Elsewhere:
	case d.Verb == v1alpha1.RemediationRun && hasEnded(d.Outcome):
		rec.takeOver(d.Outcome)
		e.note(rec)
		return false
	case d.Verb == v1alpha1.RemediationWouldRun || d.Verb == v1alpha1.RemediationWithheld:
		rec.State, rec.Reason, rec.Message = v1alpha1.ResultState(d.Verb), word(d.Reason, string(d.Verb)), oneLine(d.Message)
		e.note(rec)
		return false
	default:
		e.wait(rec.ID, word(d.Reason, "Waiting"), d.Message)
		return false
	}
	e.r.c.Fault(StageAllowed)
	err = e.r.c.Intent(asking, a)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		e.wait(rec.ID, ReasonIntentNotSaved, err.Error())
		return false
	}
	e.r.c.Fault(StageIntended)
	return true
}

func (e *execution) wait(id int, reason, message string) {
	e.waiting = &Waiting{ID: id, Reason: reason, Message: oneLine(message)}
	if was := e.cp.Waiting; was == nil || *was != *e.waiting {
		e.cp.Waiting, e.dirty = e.waiting, true
	}
}
