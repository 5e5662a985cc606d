package worker

import (
	"slices"
	"time"
)

// remembered is the shortest time for which the name of a finished Diagnosis is remembered. The
// agent's state is saved more often, so what is observed again after a restart began later than
// that.
const remembered = 10 * time.Minute

// verifiedWithin is longer than the verification of a repair can take: verifyWithin is at most 24h.
const verifiedWithin = 25 * time.Hour

// awaitsProblem reports whether the end of its problem is still needed to verify its repair.
func (w *Worker) awaitsProblem(e *entry, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !e.Gone && e.Problem != nil && e.Repaired && !e.verified() && now.Sub(e.End.At) < verifiedWithin
}

// forget removes runs that are no longer needed: those of Diagnoses that were deleted before they
// ended, and the oldest ended ones beyond the number that is kept, if the store has their end and
// no repair of theirs is being verified. The evidence of an ended run outlives its object, because
// the cluster keeps few objects of a fault that many nodes have.
func (w *Worker) forget() {
	now := time.Now()
	var over, ended []*entry
	for _, e := range w.all() {
		w.mu.Lock()
		switch {
		case e.active || e.unsaved && e.saveAt.IsZero(): // don't wait for a failing disk
		case e.End != nil && (e.Gone || (e.Reported || e.Local) && e.Shown):
			e.report, e.plan, e.specs = nil, nil, nil // the checkpoint has it
			if e.Gone || !e.Repaired {
				e.latest = nil
			}
			ended = append(ended, e)
		case e.Gone:
			if !e.swept {
				w.mu.Unlock()
				w.sweep(e)
				w.mu.Lock()
			}
			if !e.Own || now.Sub(e.Taken) > remembered {
				over = append(over, e)
			}
		}
		w.mu.Unlock()
	}
	slices.SortStableFunc(ended, func(a, b *entry) int { return a.End.At.Compare(b.End.At) })
	for i, e := range ended[:max(0, len(ended)-w.c.Keep)] {
		if e.Own && now.Sub(e.Taken) <= remembered || w.awaitsProblem(e, now) && len(ended)-i <= w.c.Keep+w.c.MaxOpen {
			continue
		}
		w.sweep(e)
		over = append(over, e)
	}
	for _, e := range over {
		if err := w.ledger.remove(e.ID); err != nil {
			w.log.Warn("old diagnosis not removed", "diagnosis", e.ID, "error", err)
		}
		w.mu.Lock()
		w.discard(e)
		w.mu.Unlock()
	}
}

// sweep removes the checkpoint and artifacts of a run.
func (w *Worker) sweep(e *entry) {
	ours := !w.ledger.newer[e.ID]
	if ours {
		if err := w.runner.Forget(e.ID); err != nil {
			w.log.Warn("checkpoint of an old diagnosis not removed", "diagnosis", e.ID, "error", err)
		}
	}
	if ours && w.artifacts != nil {
		if err := w.artifacts.Remove(e.ID); err != nil {
			w.log.Warn("artifacts of an old diagnosis are not removed", "diagnosis", e.ID, "error", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.swept, e.report = true, nil
}

// discard removes an entry from memory. The lock is held.
func (w *Worker) discard(e *entry) {
	delete(w.entries, e.ID)
	if w.names[e.name()] == e.ID {
		delete(w.names, e.name())
	}
	if e.Problem == nil {
		return
	}
	key := problemKey{e.Problem.Rule, e.Problem.Group}
	w.problems[key] = slices.DeleteFunc(w.problems[key], func(o *entry) bool { return o == e })
	if len(w.problems[key]) == 0 {
		delete(w.problems, key)
	}
}
