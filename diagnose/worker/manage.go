package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

const (
	// saveAgain is after how long a write of the ledger that has failed is tried again.
	saveAgain = 10 * time.Second
	// askAgain is after how long a run that waits for a decision is executed again though
	// nothing has changed: where the gate could not be asked, or the intent not announced.
	askAgain = 10 * time.Second
	// askPatiently is the same where the controller is to decide: the store reports that.
	askPatiently = time.Minute
	// holdFor is for how long what a Diagnosis is made of may be unknown, where the store
	// has not said yet what there is.
	holdFor = 2 * time.Minute
)

// manage runs what is to be run and keeps the ledger until ctx ends. It never asks the
// store: one that is away holds no run.
func (w *Worker) manage(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.moved:
		case <-timer.C:
		}
		w.lookAgain()
		w.persist()
		for _, e := range w.all() {
			w.advance(e)
		}
		w.persist()
		w.reportEnded()
		w.forget()
		timer.Reset(time.Until(w.nextLook()))
	}
}

// lookAgain sees to what has waited for triggers and pods, and for a place.
func (w *Worker) lookAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp()
	w.enterAll()
}

// all returns the entries, the node's own before those of tenants, and of these the ones
// that were taken first before.
func (w *Worker) all() []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sorted()
}

// sorted is all with the lock held.
func (w *Worker) sorted() []*entry {
	out := make([]*entry, 0, len(w.entries))
	for _, e := range w.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *entry) int {
		return cmp.Or(w.rank(a)-w.rank(b), a.Taken.Compare(b.Taken), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// rank is 0 for the node's own, 1 for those of tenants.
func (w *Worker) rank(e *entry) int {
	if tenancy.Applies(e.Diagnosis, w.c.Namespace) {
		return 1
	}
	return 0
}

// persist writes what the ledger does not have.
func (w *Worker) persist() {
	for _, e := range w.all() {
		w.mu.Lock()
		due := e.unsaved && !time.Now().Before(e.saveAt)
		var raw []byte
		var err error
		if due {
			raw, err = json.Marshal(&e.saved)
			e.unsaved = false
		}
		w.mu.Unlock()
		if !due {
			continue
		}
		if err == nil {
			err = w.ledger.write(e.ID, raw)
		}
		w.mu.Lock()
		if err == nil {
			e.never, e.saveAt = false, time.Time{}
		} else {
			// A disk that is full or read-only is one to diagnose: the run goes on.
			e.unsaved, e.saveAt = true, time.Now().Add(saveAgain)
			if w.stats.Unsaved++; w.stats.Unsaved == 1 {
				w.log.Warn("queued diagnosis not saved to disk", "diagnosis", e.ID, "error", err)
			}
		}
		w.mu.Unlock()
	}
}

// nextLook is when there is something to do by time alone.
func (w *Worker) nextLook() time.Time {
	next := time.Now().Add(time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 && w.installed {
		next = time.Now().Add(podsAgain)
	}
	for _, e := range w.entries {
		for _, at := range []time.Time{e.held, e.askAt} {
			if !at.IsZero() && at.Before(next) && e.End == nil && !e.active && !e.Gone {
				next = at
			}
		}
		if e.unsaved && e.saveAt.Before(next) {
			next = e.saveAt
		}
	}
	return next
}

// advance does what is next of a Diagnosis.
func (w *Worker) advance(e *entry) {
	w.mu.Lock()
	now := time.Now()
	begun := e.Parameters != nil
	switch {
	case e.cancel != "" && e.active:
		why := e.cancel
		if e.cancelled {
			break
		}
		e.cancelled = true
		w.mu.Unlock()
		w.pool.Cancel(e.ID, why)
		return
	case e.End != nil && !e.End.Ran && begun && !e.Gone && !e.active && !e.closed:
		e.closed = true
		end := e.End.End
		w.mu.Unlock()
		if err := w.runner.Close(e.ID, end); err != nil {
			w.log.Warn("checkpoint does not have the end of its diagnosis", "diagnosis", e.ID, "error", err)
		}
		return
	case e.Gone || e.End != nil || e.active:
	case e.cancel != "" && !begun:
		e.finish(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, e.cancel)
		wake(w.reported)
	case w.yields(e):
		e.askAt = time.Time{} // it goes on once the report has claimed it
	case !e.askAt.IsZero() && !e.again && e.cancel == "" && now.Before(e.askAt):
	default:
		d := w.prepare(e, now)
		if d == nil {
			break
		}
		e.active, e.again, e.askAt, e.cancelled = true, false, time.Time{}, false
		why := e.cancel
		w.mu.Unlock()
		w.submit(e, d, why)
		return
	}
	w.mu.Unlock()
}

// yields reports whether a Diagnosis may be another agent's: the report claims it, or leaves
// it to that one. Of a problem of this node nothing waits for a claim, as the API server may
// be away: what two agents have seen is left to one of them once the other is known to have
// it. The lock is held.
func (w *Worker) yields(e *entry) bool {
	return !e.Claimed && (!e.Own || e.latest != nil && w.hold().another(&e.latest.Status))
}

// submit hands a run to the pool.
func (w *Worker) submit(e *entry, d *runner.Diagnosis, cancel string) {
	err := w.pool.Submit(d)
	if err == nil && cancel != "" {
		w.pool.Cancel(e.ID, cancel)
	}
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.active = false
	if !errors.Is(err, runner.ErrClosed) { // full: there is room when another has ended
		e.askAt = time.Now().Add(askAgain)
	}
}

// changed is called with each state of a run, by the worker that executes it.
func (w *Worker) changed(rep *runner.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[rep.ID]
	if e == nil {
		return
	}
	if waitsAlike(e.report, rep) {
		return // it was only asked again
	}
	// Where the last one had a repair under way, its intent is to be taken back at once.
	urgent := e.report == nil && !e.Own || rep.Waiting != nil && rep.Waiting.Reason != reasonAway || repairsRan(rep) != repairsRan(e.report)
	e.report = rep
	e.changed(urgent)
	wake(w.reported)
}

// waitsAlike reports whether nothing has changed between two states of a run that waits.
func waitsAlike(a, b *runner.Report) bool {
	return a != nil && a.Waiting != nil && b.Waiting != nil && *a.Waiting == *b.Waiting && len(a.Records) == len(b.Records)
}

// repairsRan counts the repairs of which the outcome is known.
func repairsRan(rep *runner.Report) int {
	if rep == nil {
		return 0
	}
	n := 0
	for i := range rep.Records {
		if r := &rep.Records[i]; r.Repairs && r.State != v1alpha1.ResultRunning && r.State != v1alpha1.ResultAwaitingApproval {
			n++
		}
	}
	return n
}

// ran gets how a run has ended, or why it goes on later.
func (w *Worker) ran(d *runner.Diagnosis, rep *runner.Report, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[d.ID]
	if e == nil {
		return
	}
	e.active = false
	defer w.wakeBoth()
	switch {
	case e.End != nil || e.Gone: // nobody waits for it
	case rep == nil:
		w.log.Warn("diagnosis can't be run", "diagnosis", d.ID, "error", err)
		e.finish(v1alpha1.PhaseFailed, v1alpha1.ReasonInvalid, err.Error())
	case rep.Phase.Ended():
		e.report = rep
		e.finish(rep.Phase, rep.Reason, rep.Message)
		e.End.Ran = true
		if !rep.Ended.IsZero() {
			e.End.At = rep.Ended
		}
		e.Repaired = mayHaveRepaired(rep)
	case rep.Waiting != nil:
		e.askAt = time.Now().Add(askPatiently)
		switch rep.Waiting.Reason {
		case "GateFailed", "IntentNotTold", reasonAway, reasonHeld:
			e.askAt = time.Now().Add(askAgain)
		}
	default:
		// The agent ends: the next goes on.
	}
}
