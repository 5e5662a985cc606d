package probe

import (
	"cmp"
	"slices"
	"time"
)

// WorkerState is where one worker stands.
type WorkerState struct {
	Key
	Namespace, Pod string
	ContainerID    string // whose probes are counted; empty: there was none yet
	Spec           *Spec
	Feed           string // event.ProbeObserved or event.ProbeActive
	Result         Result // by the thresholds
	// Failures and Successes of the latest probes in a row: one of them is 0. On hold,
	// those that led to it.
	Failures, Successes int
	OnHold              bool // until the container has a new ID
	// Due says that the next probe counts: pod and container are such that kubelet
	// makes it.
	Due         bool
	LastOutcome time.Time
}

// Worker returns the state of a worker that has not ended.
func (m *Manager) Worker(k Key) (WorkerState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[k]
	if w == nil {
		return WorkerState{}, false
	}
	return m.state(w, time.Now()), true
}

// Workers returns the states of all workers, by pod, container and kind.
func (m *Manager) Workers() []WorkerState {
	m.mu.Lock()
	states := make([]WorkerState, 0, len(m.workers))
	now := time.Now()
	for _, w := range m.workers {
		states = append(states, m.state(w, now))
	}
	m.mu.Unlock()
	slices.SortFunc(states, func(a, b WorkerState) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.PodUID, b.PodUID),
			cmp.Compare(a.Container, b.Container), cmp.Compare(a.Kind, b.Kind),
		)
	})
	return states
}

func (m *Manager) state(w *worker, now time.Time) WorkerState {
	s := WorkerState{
		Key: w.key, Namespace: w.entry.pod.Namespace, Pod: w.entry.pod.Name, ContainerID: w.id,
		Spec: w.course.spec, Feed: w.feed, OnHold: w.onHold, LastOutcome: w.latest,
	}
	s.Failures, s.Successes = w.inARow()
	s.Result, _ = m.results[w.key.Kind].Get(w.id)
	if c := w.entry.container(w.key.Container); c != nil {
		at := sight{pod: w.entry.pod, container: c, started: m.started(w.entry.pod, c), now: now}
		course := w.course // looked at without effects
		next, _ := course.look(&at)
		s.Due = next == stepProbe
	}
	return s
}

// Results returns the results of a kind; nil of one that does not exist.
func (m *Manager) Results(k Kind) *Results { return m.results[k] }

// Pods returns all pods, as last added; they must not be changed.
func (m *Manager) Pods() []*Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := make([]*Pod, 0, len(m.pods))
	for _, e := range m.pods {
		pods = append(pods, e.pod)
	}
	return pods
}

// Pod returns one pod, as last added; it must not be changed.
func (m *Manager) Pod(uid string) (*Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	if e == nil {
		return nil, false
	}
	return e.pod, true
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

// started: a container has started when it runs and its startup probe, if any, has
// succeeded; mu is held.
func (m *Manager) started(p *Pod, c *Container) bool {
	if c.State != Running {
		return false
	}
	if result, ok := m.results[Startup].Get(c.ID); ok {
		return result == Success
	}
	return c.Started || m.workers[Key{PodUID: p.UID, Container: c.Name, Kind: Startup}] == nil
}

// ready: a container that has started is ready unless it has a readiness probe that has
// not succeeded; mu is held.
func (m *Manager) ready(p *Pod, c *Container) bool {
	if result, ok := m.results[Readiness].Get(c.ID); ok && result == Success {
		return true
	}
	return m.workers[Key{PodUID: p.UID, Container: c.Name, Kind: Readiness}] == nil
}
