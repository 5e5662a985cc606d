package probe

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// Prober makes probes. It must be safe for concurrent use.
type Prober interface {
	// Probe makes one probe within its timeout. It returns an error if the probe could not be
	// made. This does not count as a failed probe; the Manager tries three times.
	Probe(ctx context.Context, r *Request) (Outcome, error)
}

// Request is a probe to be made. What it points to must not be changed.
type Request struct {
	Key       Key
	Pod       *Pod
	Container *Container
	Spec      *Spec
}

// tries is how often the Manager tries a probe that can't be made, as kubelet does.
const tries = 3

// launch starts the goroutine of an active worker if the Manager is running; mu is held.
func (m *Manager) launch(w *worker) {
	if m.run == nil || m.ended || w.ended || w.stop != nil || w.feed != event.ProbeActive {
		return
	}
	ctx, stop := context.WithCancel(m.run)
	w.stop = stop
	m.running.Go(func() {
		defer stop()
		m.drive(ctx, w)
	})
}

// drive probes at each tick and whenever it is triggered, until the worker ends.
func (m *Manager) drive(ctx context.Context, w *worker) {
	period := w.course.spec.Period
	if period <= 0 {
		period = DefaultPeriod
	}
	// Without the random delay, all probes would run at once after a restart of the agent.
	if period > time.Since(m.cfg.Start) {
		first := time.NewTimer(rand.N(period))
		defer first.Stop()
		select {
		case <-ctx.Done():
			return
		case <-first.C:
		}
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for m.once(ctx, w) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.trigger:
			tick.Reset(period)
		}
	}
}

// once makes the probe if it is due. It reports whether the worker continues.
func (m *Manager) once(ctx context.Context, w *worker) bool {
	switch m.look(w, time.Now()) {
	case stepEnd:
		return false
	case stepWait:
		return true
	}
	m.mu.Lock()
	pod, id := w.entry.pod, w.id
	c := w.entry.container(w.key.Container)
	m.mu.Unlock()
	if c == nil {
		return true
	}
	r := Request{Key: w.key, Pod: pod, Container: c, Spec: w.course.spec}
	var o Outcome
	var err error
	for range tries {
		if o, err = m.cfg.Prober.Probe(ctx, &r); err == nil || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return false // an interrupted probe says nothing about the container
	}
	if err != nil {
		m.notMade(w, err)
		return true
	}
	m.outcome(w, &o, id)
	return true
}

// notMade counts a probe that could not be made and logs the first of several in a row.
func (m *Manager) notMade(w *worker, err error) {
	m.mu.Lock()
	first := !w.erring
	w.erring = true
	m.bump(w, Unknown)
	pod := w.entry.pod
	m.mu.Unlock()
	if first {
		m.cfg.Log.Warn("can't run probe", "namespace", pod.Namespace, "pod", pod.Name,
			"container", w.key.Container, "probe", string(w.key.Kind), "error", err)
	}
}

// hasten makes the readiness probe of a container at once, if the container has started and is
// not ready; mu is held.
func (m *Manager) hasten(e *entry, c *Container) {
	if !e.pod.Active || !m.started(e.pod, c) {
		return
	}
	if result, ok := m.results[Readiness].Get(c.ID); ok && result == Success {
		return
	}
	if w := m.workers[Key{PodUID: e.pod.UID, Container: c.Name, Kind: Readiness}]; w != nil {
		w.hasten()
	}
}

func (w *worker) hasten() {
	if w.trigger == nil {
		return
	}
	select {
	case w.trigger <- struct{}{}:
	default: // a trigger is already pending
	}
}
