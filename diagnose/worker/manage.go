package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

const (
	// saveAgain is the pause before a failed write of the ledger is retried.
	saveAgain = 10 * time.Second
	// askAgain is the pause before a run that waits for a decision is executed again without any
	// change, because the gate or the intent failed.
	askAgain = 10 * time.Second
	// askPatiently is the same pause while the controller must decide: the store reports that
	// decision.
	askPatiently = time.Minute
	// holdFor is how long the objects of a Diagnosis may be unknown while the store has not synced.
	holdFor = 2 * time.Minute
)

// manage starts runs and maintains the ledger until ctx ends. It never calls the store, so an
// unreachable store delays no run.
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
		w.mu.Lock()
		w.catchUp()
		w.enterAll()
		w.mu.Unlock()
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

// all returns the entries: the node's own before those of tenants, and older ones first.
func (w *Worker) all() []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sorted()
}

// sorted does the same with the lock held.
func (w *Worker) sorted() []*entry {
	return slices.SortedFunc(maps.Values(w.entries), func(a, b *entry) int {
		return cmp.Or(w.rank(a)-w.rank(b), a.Taken.Compare(b.Taken), cmp.Compare(a.ID, b.ID))
	})
}

// rank returns 0 for the node's own entries, 1 for those of tenants.
func (w *Worker) rank(e *entry) int {
	if tenancy.Applies(e.Diagnosis, w.c.Namespace) {
		return 1
	}
	return 0
}

// persist writes unsaved entries to the ledger.
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
			// The run continues, because a full or read-only disk is a fault to diagnose.
			e.unsaved, e.saveAt = true, time.Now().Add(saveAgain)
			if w.stats.Unsaved++; w.stats.Unsaved == 1 {
				w.log.Warn("queued diagnosis not saved to disk", "diagnosis", e.ID, "error", err)
			}
		}
		w.mu.Unlock()
	}
}

// nextLook returns when there is something to do even without a wakeup.
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

// advance takes the next step of a Diagnosis.
func (w *Worker) advance(e *entry) {
	w.mu.Lock()
	now := time.Now()
	begun := e.Parameters != nil
	switch {
	case e.cancel != "" && e.active && e.cancelled:
	case e.cancel != "" && e.active:
		why := e.cancel
		e.cancelled = true
		w.mu.Unlock()
		w.pool.Cancel(e.ID, why)
		return
	case e.End != nil && !e.End.Ran && begun && !e.Gone && !e.active && !e.closed:
		e.closed = true
		end := e.End.End
		w.mu.Unlock()
		if _, err := w.runner.Close(e.ID, end); err != nil {
			w.log.Warn("can't write the end of a diagnosis to its checkpoint", "diagnosis", e.ID, "error", err)
		}
		return
	case e.Gone || e.End != nil || e.active:
	case e.cancel != "" && !begun:
		end := runner.End{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelled, Message: e.cancel, At: now}
		w.mu.Unlock()
		w.giveUp(e, end)
		return
	case w.yields(e):
		e.askAt = time.Time{} // it continues once the report has claimed it
	case !e.askAt.IsZero() && !e.again && e.cancel == "" && now.Before(e.askAt):
	default:
		d, refused := w.prepare(e, now)
		if refused != nil {
			w.mu.Unlock()
			w.giveUp(e, *refused)
			return
		}
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

// giveUp ends a Diagnosis that is not executed any more. If the outcome of a repair is not known,
// it ends as Unknown instead. If its run has already ended, that end stays.
func (w *Worker) giveUp(e *entry, end runner.End) {
	rep, err := w.runner.Close(e.ID, end)
	if err != nil {
		w.log.Warn("can't write the end of a diagnosis to its checkpoint", "diagnosis", e.ID, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.End != nil || e.Gone {
		return
	}
	e.closed = true
	_, unreadable := errors.AsType[*runner.CheckpointError](err)
	switch {
	case rep != nil:
		e.adopt(rep)
	case e.intent() != nil, unreadable && e.report == nil && e.Parameters != nil:
		e.finish(v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "unknown whether a repair was made: check by hand; "+end.Message)
	default:
		e.finish(end.Phase, end.Reason, end.Message)
	}
	wake(w.reported)
}

// yields reports whether a Diagnosis may belong to another agent. The next report then either
// claims it or leaves it to that agent. A Diagnosis of a problem on this node never waits for a
// claim, because the API server may be down. If two agents have created it, one yields once it
// learns that the other has it. The lock is held.
func (w *Worker) yields(e *entry) bool {
	return !e.Claimed && (!e.Own || e.latest != nil && w.hold().another(&e.latest.Status))
}

// submit passes a run to the pool.
func (w *Worker) submit(e *entry, d *runner.Diagnosis, cancel string) {
	err := w.pool.Submit(d)
	if err == nil {
		if cancel != "" {
			w.pool.Cancel(e.ID, cancel)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.active = false
	if !errors.Is(err, runner.ErrClosed) { // full: there will be room when another run ends
		e.askAt = time.Now().Add(askAgain)
	}
}

// changed receives each state of a run, from the pool's goroutine that executes it.
func (w *Worker) changed(rep *runner.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[rep.ID]
	if e == nil {
		return
	}
	was, is := e.report, rep.Waiting
	if was != nil && was.Waiting != nil && is != nil && *was.Waiting == *is && len(was.Records) == len(rep.Records) {
		return // it was only executed again
	}
	// If the previous report had a repair under way, its intent must be cleared at once.
	urgent := e.report == nil && !e.Own || rep.Waiting != nil && rep.Waiting.Reason != reasonAway || repairsRan(rep) != repairsRan(e.report)
	e.report = rep
	e.changed(urgent)
	wake(w.reported)
}

// repairsRan counts the repairs whose outcome is known.
func repairsRan(rep *runner.Report) int {
	if rep == nil {
		return 0
	}
	n := 0
	for i := range rep.Records {
		if r := &rep.Records[i]; r.Repairs && hasEnded(r) {
			n++
		}
	}
	return n
}

// hasEnded reports whether the outcome of an operation is known.
func hasEnded(r *runner.Record) bool {
	return r.State != v1alpha1.ResultRunning && r.State != v1alpha1.ResultAwaitingApproval
}

// ran receives how a run has ended, or why it will be resumed later.
func (w *Worker) ran(d *runner.Diagnosis, rep *runner.Report, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[d.ID]
	if e == nil {
		return
	}
	e.active = false
	defer w.wakeBoth()
	_, unreadable := errors.AsType[*runner.CheckpointError](err)
	switch {
	case e.End != nil || e.Gone: // no longer needed
	case rep == nil:
		w.log.Warn("can't run diagnosis", "diagnosis", d.ID, "error", err)
		e.finish(v1alpha1.PhaseFailed, v1alpha1.ReasonInvalid, err.Error())
	case unreadable: // the report does not have what ran before
		e.finish(rep.Phase, rep.Reason, rep.Message)
	case rep.Phase.Ended():
		e.adopt(rep)
	case rep.Waiting != nil:
		e.askAt = time.Now().Add(askPatiently)
		switch rep.Waiting.Reason {
		case runner.ReasonGateFailed, runner.ReasonIntentNotSaved, reasonAway, reasonHeld:
			e.askAt = time.Now().Add(askAgain)
		}
	default:
		// The agent is stopping: the next one resumes the run.
	}
}
