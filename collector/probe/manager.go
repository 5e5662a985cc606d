package probe

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/event"
)

// Config configures a Manager.
type Config struct {
	// Report is called for each failure and recovery, from several goroutines; those of one probe
	// come in order. The event is valid only during the call. Report may query the Manager, but
	// must not call AddPod, RemovePod, ReplacePods or Observe.
	Report func(*event.Event)
	// Prober makes the probes of pods that are Active. If nil, all pods are only observed.
	Prober Prober
	Log    *slog.Logger
	// Start is when the agent's process began. If it is younger than a probe's period, the probe
	// first runs after a random part of the period.
	Start time.Time
	// Failing reports whether an earlier process reported a failure of the probe but not its end,
	// so that this process reports the end. It is called when a worker is created. May be nil.
	Failing func(Key) bool
}

// maxPods is ten times kubelet's default limit.
const maxPods = 1100

// Manager manages the workers of all pods. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	results map[Kind]*Results

	// change is held while pods are added and removed, a worker's turn while an outcome is
	// counted and reported. mu guards the fields that both use. Lock them in this order.
	change  sync.Mutex
	mu      sync.Mutex
	pods    map[string]*entry
	workers map[Key]*worker
	figures figures
	run     context.Context // nil: not running
	ended   bool
	running sync.WaitGroup
}

var _ prometheus.Collector = (*Manager)(nil)

// entry is a pod with its workers, including those that have ended, so that none is created again
// when the pod's status arrives again.
type entry struct {
	pod     *Pod
	workers []*worker
}

// New returns a Manager that has no pods yet.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Report == nil {
		cfg.Report = func(*event.Event) {}
	}
	m := &Manager{
		cfg: cfg, results: map[Kind]*Results{},
		pods: map[string]*entry{}, workers: map[Key]*worker{},
	}
	for _, k := range Kinds() {
		m.results[k] = &Results{byID: map[string]Result{}}
	}
	return m
}

// Run makes the probes of the active pods until ctx ends, then ends all workers. It reports no
// end of probes that were failing: the next process continues with them. Pods may be added before
// Run. It may be called only once.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.run = ctx
	for _, w := range m.workers {
		m.launch(w)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	m.ended = true
	for _, w := range m.workers {
		m.finish(w)
	}
	m.mu.Unlock()
	m.running.Wait()
	return nil
}

// AddPod adds or updates a pod. It keeps p, which must not be changed. Workers whose probe has
// changed start afresh.
func (m *Manager) AddPod(p *Pod) {
	m.change.Lock()
	defer m.change.Unlock()
	e, before, ok := m.admit(p)
	if !ok {
		return
	}
	now := time.Now()
	var fresh []*worker
	for _, w := range m.unwanted(e) {
		m.remove(w, now)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		for _, k := range Kinds() {
			if spec := c.Probe(k); spec != nil {
				if w := m.hire(e, Key{PodUID: p.UID, Container: c.Name, Kind: k}, spec); w != nil {
					fresh = append(fresh, w)
				}
			}
		}
	}
	for _, w := range e.workers {
		m.look(w, now)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range fresh {
		m.launch(w)
	}
	// kubelet probes readiness at once when the pod has changed.
	if before != nil && p.Active && !reflect.DeepEqual(before, p) {
		for i := range p.Containers {
			m.hasten(e, &p.Containers[i])
		}
	}
}

// admit stores a pod's newest state. It refuses new pods beyond maxPods.
func (m *Manager) admit(p *Pod) (e *entry, before *Pod, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, nil, false
	}
	e = m.pods[p.UID]
	if e == nil {
		if len(m.pods) >= maxPods {
			if m.figures.refusedPods == 0 {
				m.cfg.Log.Warn("probes: too many pods, some are ignored", "at_most", maxPods, "namespace", p.Namespace, "pod", p.Name)
			}
			m.figures.refusedPods++
			return nil, nil, false
		}
		e = &entry{}
		m.pods[p.UID] = e
	}
	before, e.pod = e.pod, p
	return e, before, true
}

// unwanted removes and returns the workers of an entry whose probe the pod no longer has, or has
// changed.
func (m *Manager) unwanted(e *entry) (gone []*worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []*worker
	for _, w := range e.workers {
		c := e.container(w.key.Container)
		if c == nil || w.feed != m.feed(e.pod) || !reflect.DeepEqual(c.Probe(w.key.Kind), w.course.spec) {
			gone = append(gone, w)
			continue
		}
		kept = append(kept, w)
	}
	e.workers = kept
	return gone
}

// hire creates a worker, unless the entry already has one for k.
func (m *Manager) hire(e *entry, k Key, spec *Spec) *worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range e.workers {
		if w.key == k {
			return nil
		}
	}
	feed := m.feed(e.pod)
	w := &worker{
		key: k, entry: e, feed: feed,
		course:   course{kind: k.Kind, spec: spec, own: feed == event.ProbeActive},
		reported: m.cfg.Failing != nil && m.cfg.Failing(k),
	}
	if feed == event.ProbeActive {
		w.trigger = make(chan struct{}, 1)
	}
	if w.shown = m.figures.shown < maxShown; w.shown {
		m.figures.shown++
	}
	e.workers = append(e.workers, w)
	m.workers[k] = w
	return w
}

// feed returns where the outcomes of a pod's probes come from.
func (m *Manager) feed(p *Pod) string {
	if p.Active && m.cfg.Prober != nil {
		return event.ProbeActive
	}
	return event.ProbeObserved
}

// ReplacePods adds or updates the pods, and removes all others.
func (m *Manager) ReplacePods(pods []*Pod) {
	kept := make(map[string]bool, len(pods))
	for _, p := range pods {
		kept[p.UID] = true
	}
	for _, p := range m.Pods() {
		if !kept[p.UID] {
			m.RemovePod(p.UID)
		}
	}
	for _, p := range pods {
		m.AddPod(p)
	}
}

// RemovePod ends the workers of a pod and removes it.
func (m *Manager) RemovePod(uid string) {
	m.change.Lock()
	defer m.change.Unlock()
	m.mu.Lock()
	e := m.pods[uid]
	m.mu.Unlock()
	if e == nil {
		return
	}
	now := time.Now()
	for _, w := range e.workers {
		m.remove(w, now)
	}
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
}

// container returns the pod's container of this name, or nil.
func (e *entry) container(name string) *Container {
	for i := range e.pod.Containers {
		if c := &e.pod.Containers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// Results returns the results of a kind, or nil for an unknown kind.
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

// started reports whether a container has started: it is running and its startup probe, if any,
// has succeeded; mu is held.
func (m *Manager) started(p *Pod, c *Container) bool {
	if c.State != Running {
		return false
	}
	if result, ok := m.results[Startup].Get(c.ID); ok {
		return result == Success
	}
	return c.Started || m.workers[Key{PodUID: p.UID, Container: c.Name, Kind: Startup}] == nil
}
