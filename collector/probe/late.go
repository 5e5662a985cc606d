package probe

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// former is the container before the present one, for failures that are reported late: the
// failure that makes kubelet restart a container is seldom known before the restart.
type former struct {
	id   string // empty: no earlier container
	run  int    // failures in a row
	over bool   // the run has reached its threshold
}

// late counts a failure of a container that has ended since. It reports whether the failure can
// belong to such a container; the turn is held.
func (m *Manager) late(w *worker, o *Outcome) bool {
	if o.OK || o.Unsure || w.feed != event.ProbeObserved {
		return false
	}
	m.mu.Lock()
	c := w.entry.container(w.key.Container)
	f := &w.former
	switch {
	case w.ended || c == nil:
		m.mu.Unlock()
		return false
	case o.Container != "" && o.Container == w.id && c.ID == w.id && c.State != Running && !w.onHold:
		// It has ended, and there is no new container yet.
		failures, _ := m.count(w, o)
		m.mu.Unlock()
		m.emitOutcome(w, event.Probe, w.id, o, failures)
		return true
	case f.id == "" || f.over || o.Container != f.id && (o.Container != "" || !o.At.Before(c.StartedAt)):
		m.mu.Unlock()
		return false
	}
	f.run++
	f.over = w.kind != Readiness && f.run >= w.spec.FailureThreshold
	m.bump(w, Failure)
	if !w.touched {
		// The run goes on with the present container, unless the run caused its restart.
		w.last, w.course.run, w.whole = Failure, f.run, w.whole || f.over
		if f.over {
			w.course.run = 0
		}
	}
	id, failures, ends := f.id, f.run, !w.reported && (f.over || !o.More)
	m.mu.Unlock()
	m.emitOutcome(w, event.Probe, id, o, failures)
	if ends {
		m.emitEnd(w, id, time.Now())
	}
	return true
}

// unsure reports a failure that kubelet may not count; the turn is held.
func (m *Manager) unsure(w *worker, o *Outcome) {
	m.mu.Lock()
	w.erring, w.reported = false, true
	m.bump(w, Unknown)
	failures, _ := w.inARow()
	m.mu.Unlock()
	m.emitOutcome(w, event.Probe, w.id, o, failures)
}
