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

// node runs the next node. An error means that ctx has interrupted it.
func (e *execution) node(ctx context.Context, id int) error {
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
		return nil
	}
	artifacts, err := e.artifacts.Of(id, e.d.Steps[id].Folder)
	if err != nil {
		rec.State, rec.Reason, rec.Message = v1alpha1.ResultFailed, "StorageRefused", oneLine(storageField+": "+err.Error())
		e.note(rec)
		return nil
	}
	if e.d.repairs(id) {
		e.flush() // the gate may take its time
		release, err := e.r.repairSlot(ctx, e.d.Node)
		if err != nil {
			return nil //nolint:nilerr // the loop sees the end of ctx, and which it is
		}
		defer release()
		if !e.allowed(ctx, rec) {
			return nil
		}
		rec.Start = time.Now() // what was waited for before is not the repair's time
	}
	e.cp.Begun, e.cp.Waiting = &begun{ID: id, Starts: starts + 1, At: rec.Start}, nil
	e.running = rec
	e.save()
	if e.unsaved != nil && e.d.repairs(id) {
		e.withhold(rec)
		return nil
	}
	e.r.c.Fault(StageBegun)
	e.r.c.Changed(e.report())
	return e.operate(ctx, rec, artifacts)
}

// withhold notes that a repair is not made, as the disk does not have what led to it.
func (e *execution) withhold(rec *Record) {
	rec.State, rec.Reason = v1alpha1.ResultWithheld, "NoCheckpoint"
	rec.Message = oneLine("a repair is made only where its checkpoint is on the disk: " + e.unsaved.Error())
	e.note(rec)
}

// newRecord is a record of which nothing but the node is known.
func (e *execution) newRecord(id int) *Record {
	return &Record{ID: id, Operation: e.cp.Plan.Nodes[id].Operation, Repairs: e.cp.Plan.repairs(id)}
}

// operate runs the operation and notes what came of it.
func (e *execution) operate(ctx context.Context, rec *Record, artifacts operation.Artifacts) error {
	step := &e.d.Steps[rec.ID]
	began := time.Now()
	out, tries, err := e.r.attempt(ctx, step, func() *Inputs { return e.inputs(rec.ID, artifacts) })
	e.r.c.Fault(StageRan)
	rec.Duration, rec.Attempts = time.Since(began), tries
	if err != nil && ctx.Err() != nil && step.Operation.Effect != operation.Remediate && interrupted(ctx, err) {
		// Not its fault: it runs again, or the run is cancelled.
		e.cp.Begun, e.running = nil, nil
		e.save()
		return nil
	}
	judge(rec, step.Operation.Effect, out, err, ctx.Err() != nil)
	if step.Folder != "" {
		e.keep(rec, out, artifacts)
	}
	e.note(rec)
	return nil
}

// storageField is what names a step's folder, for people.
const storageField = "spec.storage.hostPath.path"

// keep writes what came of a node into its operation's folder: the record, with all of its
// results. The run does not depend on it: one that can't be written is reported.
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
		e.log.Warn("results are not kept", "id", rec.ID, "operation", rec.Operation, "error", err)
		rec.Message = oneLine(strings.TrimPrefix(rec.Message+"; results are not kept: "+err.Error(), "; "))
	}
}

// interrupted reports whether an error is of the run's context, not of the operation.
func interrupted(ctx context.Context, err error) bool {
	_, refuted := errors.AsType[*operation.Refuted](err)
	return !refuted && !isPanic(err) && errors.Is(err, context.Cause(ctx))
}

// judge says what became of a node. stopped: the run was interrupted or cancelled.
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
	// Errors that were joined are lines.
	rec.State, rec.Message = v1alpha1.ResultFailed, oneLine(strings.ReplaceAll(err.Error(), "\n", "; "))
	_, timeout := errors.AsType[*timedOut](err)
	_, hangs := errors.AsType[*left](err)
	switch {
	case hangs:
		rec.Reason = "DidNotEnd"
	case timeout:
		rec.Reason = "TimedOut"
	case isPanic(err):
		rec.Reason = "Panicked"
	case errors.Is(err, errHanging):
		rec.Reason = "OperationsHang"
		return // it was not begun
	case stopped:
		rec.Reason = "Interrupted"
	default:
		rec.Reason = "Failed"
		return // a repair that says itself that it failed
	}
	if effect == operation.Remediate {
		rec.State = v1alpha1.ResultUnknown
	}
}

// note takes what became of a node into the checkpoint and the state machine. That of a
// repair is on the disk when it returns; that of others is with what comes next, at
// once: without it they run again, which they may.
func (e *execution) note(rec *Record) {
	e.running = nil
	e.cp.Begun, e.cp.Waiting = nil, nil
	e.cp.Records = append(e.cp.Records, *rec)
	if err := e.run.Done(rec.ID, rec.outcome()); err != nil {
		panic(fmt.Sprintf("runner: %v", err)) // the node is the one that Next named
	}
	e.r.count(func(s *Stats) { s.Operations[string(rec.State)]++ })
	e.log.Debug("operation ended", "id", rec.ID, "operation", rec.Operation, "state", string(rec.State), "reason", rec.Reason, "duration", rec.Duration)
	e.dirty = true
	if rec.Repairs {
		e.save()
	}
	e.r.c.Fault(StageNoted)
}

// gateTimeout bounds the question to the gate and the reporting the intent. The run
// holds a worker meanwhile, and waits without one when the time is up.
const gateTimeout = 30 * time.Second

// allowed asks the gate and announces the intent. Where the repair must not begin now it
// notes why, or waits, and returns false.
func (e *execution) allowed(ctx context.Context, rec *Record) bool {
	if slices.Contains(e.cp.Plan.Intended, rec.ID) {
		rec.State, rec.Reason = v1alpha1.ResultUnknown, "Interrupted"
		rec.Message = "an earlier run of this diagnosis meant to make this repair, and its checkpoint is gone; it is not made again"
		e.note(rec)
		return false
	}
	if e.unsaved != nil { // a wait would begin the run anew
		e.withhold(rec)
		return false
	}
	in := e.inputs(rec.ID, noArtifacts{})
	a := &Action{
		Diagnosis: e.d.ID, Node: e.d.Node, ID: rec.ID, Operation: rec.Operation, Path: e.run.Result().Path,
		Parameters: in.Parameters, Results: in.Results,
	}
	asking, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	d, err := e.r.c.Gate.Allow(asking, a)
	if ctx.Err() != nil {
		return false // whatever it says: the loop sees why
	}
	if err != nil {
		d = Decision{Verb: v1alpha1.RemediationWait, Reason: "GateFailed", Message: err.Error()}
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
		e.wait(rec.ID, "IntentNotTold", err.Error())
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
