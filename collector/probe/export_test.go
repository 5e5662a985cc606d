package probe

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// WorkerState is where one worker stands.
type WorkerState struct {
	Result Result // by the thresholds
	// Failures and Successes of the latest probes in a row: one of them is 0. On hold,
	// those that led to it.
	Failures, Successes int
	OnHold              bool // until the container has a new ID
	// Due says that the next probe counts: pod and container are such that kubelet
	// makes it.
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
			course := w.course // looked at without effects
			next, _ := course.look(&at)
			s.Due = next == stepProbe
		}
		states[k] = s
	}
	return states
}

// Trigger makes a probe at once, whose next one then is a period later. False: there is
// no such active worker.
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

// ContainerStatus is what follows from the probes of a container.
type ContainerStatus struct {
	Name, ID       string
	Started, Ready bool
}

// Containers derives what kubelet would say of a pod's containers now, from their state
// and the results; nil where the pod is not known.
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

// ready: a container that has started is ready unless it has a readiness probe that has
// not succeeded; mu is held.
func (m *Manager) ready(p *Pod, c *Container) bool {
	if result, ok := m.results[Readiness].Get(c.ID); ok && result == Success {
		return true
	}
	return m.workers[Key{PodUID: p.UID, Container: c.Name, Kind: Readiness}] == nil
}
