package worker

import (
	"context"
	"errors"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

const (
	// writeEvery is the shortest interval between writes of a Diagnosis, unless they are urgent.
	writeEvery = 5 * time.Second
	// firstWrite is how long after its creation a Diagnosis of the node's own triggers is first
	// written, unless it is urgent: most runs end sooner, and are written only once.
	firstWrite = time.Second
	// yieldFor is how long a Diagnosis is left to another agent before this one checks again
	// whether that is alive.
	yieldFor = 10 * time.Second
	// storeTimeout bounds a request to the store.
	storeTimeout = 30 * time.Second
	// Pauses after failures, doubled each time.
	firstPause, lastPause = time.Second, 30 * time.Second
)

// report reports Diagnoses to the store until ctx ends, one at a time.
func (w *Worker) report(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e, due := w.nextToWrite()
		if now := time.Now(); e != nil && !due.After(now) {
			w.writeOne(ctx, e)
			continue
		}
		if w.reportOutside(ctx) {
			continue
		}
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
		case <-w.reported:
		case <-timer.C:
		}
	}
}

// nextToWrite returns the entry to report next, and when.
func (w *Worker) nextToWrite() (first *entry, due time.Time) {
	due = time.Now().Add(time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.sorted() {
		at, ok := e.due()
		if !ok {
			continue
		}
		if at.Before(w.awayUntil) {
			at = w.awayUntil
		}
		if at.Before(due) {
			first, due = e, at
		}
	}
	return first, due
}

// due returns when a Diagnosis must be reported next, if at all. The lock is held.
func (e *entry) due() (at time.Time, ok bool) {
	at = e.retryAt
	later := func(t time.Time) {
		if t.After(at) {
			at = t
		}
	}
	changed := e.version != e.written
	switch {
	case e.Gone || e.Local:
		return at, false
	case e.Reported:
		if !e.reportsProblem() {
			return at, false
		}
		later(e.lastWrite.Add(writeEvery))
		return at, true
	case e.Own && e.Diagnosis.UID == "", e.End != nil, changed && e.urgent:
		return at, true
	case !e.Claimed:
		if e.Own {
			later(e.stored.Add(firstWrite))
		}
		return at, true
	case changed:
		later(e.lastWrite.Add(writeEvery))
		return at, true
	default:
		return at, false // the agent's Lease shows that it is alive
	}
}

// reportsProblem reports whether changes of the problem must be reported even after the end,
// because a repair is being verified. The lock is held.
func (e *entry) reportsProblem() bool {
	return e.Problem != nil && e.Problem.Reported != e.Problem.State && e.Repaired && !e.verified()
}

// writeOne creates or writes a Diagnosis.
func (w *Worker) writeOne(ctx context.Context, e *entry) {
	asking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w.mu.Lock()
	if e.Own && e.Diagnosis.UID == "" {
		wanted := e.Diagnosis.DeepCopy()
		w.mu.Unlock()
		d, err := w.c.Store.Create(asking, wanted)
		if ctx.Err() != nil && err != nil {
			return
		}
		w.created(e, d, err)
		return
	}
	if w.asksForPod(e) {
		w.mu.Unlock()
		w.askForPod(asking, e)
		return
	}
	now := w.snapshot(e)
	key := e.key()
	w.mu.Unlock()
	var res applied
	d, err := w.c.Store.Write(asking, key, func(s *v1alpha1.DiagnosisStatus) { res = now.apply(s) })
	if ctx.Err() != nil && err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wrote(e, d, err) {
		return
	}
	switch res {
	case appliedAll:
		e.written = now.version
		e.urgent = e.urgent && e.version != now.version
		if !e.Claimed {
			e.Claimed, e.unsaved = true, true
			wake(w.moved)
		}
		if now.end != nil && !e.Reported {
			e.Reported, e.unsaved = true, true
			wake(w.moved)
		}
		e.markProblem(now.problem)
	case appliedProblem: // the status is final
		w.endedElsewhere(e, d)
		e.markProblem(now.problem)
	case appliedNothing: // another agent has it
		w.stats.Yielded++
		e.retryAt = time.Now().Add(yieldFor)
		if e.Claimed { // the other took it over while we seemed dead
			e.Claimed, e.unsaved = false, true
			wake(w.moved)
		}
	}
}

// markProblem records which state of the problem the store has. The lock is held.
func (e *entry) markProblem(was problemRef) {
	if e.Problem != nil && was.State != "" && e.Problem.Reported != was.State {
		e.Problem.Reported, e.unsaved = was.State, true
	}
}

// created handles the store's response to Create.
func (w *Worker) created(e *entry, d *v1alpha1.Diagnosis, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.wakeBoth()
	switch {
	case err == nil:
		w.answers()
		if e.Diagnosis.UID == "" { // otherwise the Handler was notified first
			w.markStored(e, d)
		}
	case errors.Is(err, ErrAway):
		w.isAway(err)
	default:
		w.answers()
		w.drop(dropRefused, "a Diagnosis that the store rejected: "+err.Error(), e.ID)
		e.Local, e.unsaved = true, true
		e.again = true // nobody will decide on a repair that it waits for
	}
}

// wrote handles the store's response to Write, and reports whether the write was accepted. The lock
// is held.
func (w *Worker) wrote(e *entry, d *v1alpha1.Diagnosis, err error) bool {
	e.lastWrite = time.Now()
	switch {
	case err == nil:
		w.stats.Writes[writeTaken]++
		w.answers()
		e.pause = 0
		if !e.knowsNewer(d) {
			e.take(d)
		}
		if e.again {
			wake(w.moved)
		}
		return true
	case errors.Is(err, ErrAway):
		w.stats.Writes[writeAway]++
		w.isAway(err)
	case errors.Is(err, ErrGone):
		w.stats.Writes[writeGone]++
		w.answers()
		w.markDeleted(e)
	default:
		w.stats.Writes[writeFailed]++
		if e.pause == 0 {
			w.log.Warn("can't write the status of a diagnosis", "diagnosis", e.ID, "error", err)
		}
		e.pause = min(max(2*e.pause, firstPause), lastPause)
		e.retryAt = time.Now().Add(e.pause)
	}
	return false
}

// isAway backs off from a store that does not answer. The lock is held.
func (w *Worker) isAway(err error) {
	if w.away == 0 {
		w.log.Warn("can't report diagnoses; retrying", "error", err)
	}
	w.away = min(max(2*w.away, firstPause), lastPause)
	w.awayUntil = time.Now().Add(w.away)
}

// answers records that the store answers. The lock is held.
func (w *Worker) answers() {
	if w.away > 0 {
		w.log.Info("diagnoses are reported again")
	}
	w.away, w.awayUntil = 0, time.Time{}
}

// reportEnded calls Ended for Diagnoses that have ended, once the ledger has their end.
func (w *Worker) reportEnded() {
	for _, e := range w.all() {
		w.mu.Lock()
		if e.Shown || e.End == nil || e.Gone || e.active || e.unsaved && !time.Now().Before(e.saveAt) {
			w.mu.Unlock()
			continue
		}
		e.Shown, e.unsaved = true, true
		now := w.snapshot(e)
		out := &Ended{ID: e.ID, Diagnosis: e.Diagnosis, Reason: e.End.Reason, Message: e.End.Message, Status: &v1alpha1.DiagnosisStatus{}}
		if e.Problem != nil {
			out.After = max(0, e.End.At.Sub(e.Taken))
		}
		w.stats.Ended[e.End.Phase]++
		w.mu.Unlock()
		if out.After > 0 {
			w.latency.Observe(out.After.Seconds())
		}
		now.apply(out.Status)
		for i := range now.artifacts {
			out.Files = append(out.Files, now.artifacts[i].Path(Artifacts(w.c.Dir), e.ID))
		}
		w.c.Ended(out)
	}
}
