package probe

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// WorkerState is the state of one worker.
type WorkerState struct {
	Result Result // according to the thresholds
	// Failures and Successes are the latest results in a row: one of them is 0. On hold, they are
	// those that led to it.
	Failures, Successes int
	OnHold              bool // until the container has a new ID
	// Due: the next probe counts, because kubelet would make it in the current state of pod and
	// container.
	Due bool
}

// Workers returns the states of the workers that have not ended.
func (m *Manager) Workers() map[Key]WorkerState {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := map[Key]WorkerState{}
	for k, w := range m.workers {
		s := WorkerState{OnHold: w.onHold}
		s.Failures, s.Successes = w.inARow()
		s.Result, _ = m.results[k.Kind].Get(w.id)
		if c := w.entry.container(k.Container); c != nil {
			at := sight{pod: w.entry.pod, container: c, started: m.started(w.entry.pod, c), now: time.Now()}
			course := w.course // a copy, so without effects
			next, _ := course.look(&at)
			s.Due = next == stepProbe
		}
		states[k] = s
	}
	return states
}

// Trigger makes a probe at once; the next one follows a period later. It returns false if there
// is no such active worker.
func (m *Manager) Trigger(k Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[k]
	if w == nil || w.feed != event.ProbeActive {
		return false
	}
	w.hasten()
	return true
}

// ContainerStatus is the status of a container as derived from its probes.
type ContainerStatus struct {
	Name, ID       string
	Started, Ready bool
}

// Containers returns the status that kubelet would report for a pod's containers now, derived
// from their state and the results; nil if the pod is not known.
func (m *Manager) Containers(uid string) []ContainerStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	if e == nil {
		return nil
	}
	statuses := make([]ContainerStatus, len(e.pod.Containers))
	for i := range e.pod.Containers {
		c := &e.pod.Containers[i]
		s := &statuses[i]
		s.Name, s.ID = c.Name, c.ID
		s.Started = m.started(e.pod, c)
		s.Ready = s.Started && m.ready(e.pod, c)
	}
	return statuses
}

// ready reports whether a container is ready: it has started, and its readiness probe, if any,
// has succeeded; mu is held.
func (m *Manager) ready(p *Pod, c *Container) bool {
	if result, ok := m.results[Readiness].Get(c.ID); ok && result == Success {
		return true
	}
	return m.workers[Key{PodUID: p.UID, Container: c.Name, Kind: Readiness}] == nil
}
