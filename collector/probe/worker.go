package probe

import (
	"context"
	"sync"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// worker counts the probes of one kind of one container. The Manager's mu guards its fields,
// except those that never change.
type worker struct {
	key     Key
	entry   *entry
	feed    string
	trigger chan struct{} // nil unless active: probe at once

	turn sync.Mutex // held while an outcome is counted and reported, to keep the order

	course
	ended    bool
	reported bool      // a failure was reported, but not its end
	counts   [3]uint64 // by Result
	shown    bool      // has series of its own
	erring   bool      // the probe could not be made, and that was logged
	stop     context.CancelFunc
	former   former
	// touched: the present container has had an outcome.
	touched bool
}

// Observe counts a probe that kubelet has made. It returns false if there is no such worker, or
// if the worker does not accept the outcome now: startup or the initial delay gates it, it is on
// hold or being deleted, or the outcome is of an earlier container.
func (m *Manager) Observe(k Key, o Outcome) bool {
	m.mu.Lock()
	w := m.workers[k]
	m.mu.Unlock()
	taken := w != nil && w.feed == event.ProbeObserved && m.outcome(w, &o, o.Container)
	if !taken {
		m.mu.Lock()
		m.figures.ignored++
		m.mu.Unlock()
	}
	return taken
}

// outcome counts and reports one outcome, if a probe is due for the container. It reports whether
// it counted it. id is the container that was probed, or "" if that is not known.
func (m *Manager) outcome(w *worker, o *Outcome, id string) bool {
	w.turn.Lock()
	defer w.turn.Unlock()
	if o.At.IsZero() {
		o.At = time.Now()
	}
	next := m.sight(w, o.At, o, id)
	if next != stepProbe {
		return m.late(w, o)
	}
	if o.Unsure && !o.OK {
		m.unsure(w, o)
		return true
	}
	m.mu.Lock()
	failures, report := m.count(w, o)
	m.mu.Unlock()
	switch {
	case !report:
	case o.OK:
		m.emitOutcome(w, event.ProbeRecovered, w.id, o, 0)
	default:
		m.emitOutcome(w, event.Probe, w.id, o, failures)
	}
	return true
}

// count updates the worker with an outcome. It returns whether the outcome is to be reported.
func (m *Manager) count(w *worker, o *Outcome) (failures int, report bool) {
	result := Failure
	if o.OK {
		result = Success
	}
	w.erring, w.touched = false, true
	m.bump(w, result)
	run, reached := w.take(result)
	if reached && m.results[w.key.Kind].Set(w.id, result) {
		// kubelet probes the pod's readiness again.
		if c := w.entry.container(w.key.Container); c != nil {
			m.hasten(w.entry, c)
		}
	}
	if result == Failure {
		w.reported = true
		return run, true
	}
	report, w.reported = w.reported, false
	return 0, report
}

// look updates a worker from its pod, and returns what it does next.
func (m *Manager) look(w *worker, now time.Time) step {
	w.turn.Lock()
	defer w.turn.Unlock()
	return m.sight(w, now, nil, "")
}

// sight updates the worker from its container, with all effects; the turn is held. If there is an
// outcome, it returns stepProbe only if a probe was due and the outcome belongs to this
// container.
func (m *Manager) sight(w *worker, now time.Time, o *Outcome, id string) step {
	m.mu.Lock()
	before := w.id
	next, over := m.advance(w, now)
	if o != nil && next == stepProbe && (id != "" && id != w.id || o.At.Before(w.entry.container(w.key.Container).StartedAt)) {
		next = stepWait // it belongs to the previous container
	}
	m.mu.Unlock()
	if over {
		m.emitEnd(w, before, now)
	}
	return next
}

// advance is the part of sight that needs mu. over means that a failure was reported, and that
// nothing more will be reported of that container.
func (m *Manager) advance(w *worker, now time.Time) (next step, over bool) {
	if w.ended {
		return stepEnd, false
	}
	c := w.entry.container(w.key.Container)
	at := sight{pod: w.entry.pod, container: c, now: now}
	if c != nil {
		at.started = m.started(w.entry.pod, c)
	}
	earlier := w.course
	next, e := w.course.look(&at)
	if w.id != earlier.id {
		failures, _ := earlier.inARow()
		w.former, w.touched = former{earlier.id, failures, earlier.onHold}, false
	}
	results := m.results[w.key.Kind]
	if e.forget != "" {
		results.Remove(e.forget)
	}
	for _, r := range e.set {
		results.Set(w.id, r)
	}
	if w.reported && (next == stepEnd || e.forget != "") {
		w.reported, over = false, true
	}
	if next == stepEnd {
		m.finish(w)
	}
	return next, over
}

// remove ends a worker because its pod or probe is gone.
func (m *Manager) remove(w *worker, now time.Time) {
	w.turn.Lock()
	defer w.turn.Unlock()
	m.mu.Lock()
	reported, id := w.reported && !w.ended, w.id
	w.reported = false
	m.finish(w)
	m.mu.Unlock()
	if reported {
		m.emitEnd(w, id, now)
	}
}

// finish ends a worker; mu is held.
func (m *Manager) finish(w *worker) {
	if w.ended {
		return
	}
	w.ended = true
	if w.stop != nil {
		w.stop()
	}
	if w.id != "" {
		m.results[w.key.Kind].Remove(w.id)
	}
	if w.shown {
		m.figures.shown--
	}
	if m.workers[w.key] == w {
		delete(m.workers, w.key)
	}
}

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
