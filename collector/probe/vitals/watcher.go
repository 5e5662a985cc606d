package vitals

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// lookLimit bounds one inspection. A container with ten processes takes 0.3 ms.
	lookLimit = 20 * time.Millisecond
	// lookRate (per second) and lookBurst limit inspections.
	lookRate, lookBurst = 20, 100
	// findEvery is how often the node's processes are scanned for containers that are not found
	// yet; findNow is the same when a probe of such a container fails.
	findEvery, findNow = 10 * time.Second, time.Second
	// maxOOM is how many containers with an OOM kill are remembered, each for oomFor.
	maxOOM = 256
	oomFor = time.Minute
	// How many processes and threads of a container are inspected.
	maxProcesses, maxThreads = 64, 256
	maxNamed                 = 3 // processes named in a cause
)

// Container is a container to be watched.
type Container struct {
	ID      string // without the runtime; not empty
	Limited bool   // it or its pod has a CPU limit
	Running bool   // it has processes
}

// Watcher inspects containers. It is safe for concurrent use.
type Watcher struct {
	fs     hostfs.FS
	layout func() (hostfs.CgroupLayout, error)
	wake   chan struct{} // receives when there is something to watch

	skipped prometheus.Counter

	mu      sync.Mutex
	watched map[string]*watched
	oom     map[string]kill
	found   time.Time // time of the latest scan of the processes
	looks   *rate.Limiter
}

// watched is a container, or a process given to Set.
type watched struct {
	limited  bool
	running  bool
	pid      int // of the process; 0: a container
	groups   *groups
	counters [levels]counters
}

// groups are the cgroup paths of a container, by hierarchy.
type groups struct {
	cpu, memory, freezer string
	pod                  string // the parent of cpu if it is its pod's; empty: there is none
}

// limits returns the groups whose CPU limits apply to the container, its own first.
func (g *groups) limits() [levels]string { return [levels]string{g.cpu, g.pod} }

type kill struct {
	at   time.Time
	task string
}

// New returns a Watcher that watches nothing.
func New(fs hostfs.FS) *Watcher {
	return &Watcher{
		fs: fs, layout: sync.OnceValues(fs.CgroupLayout),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kernosis_probe_looks_skipped_total",
			Help: "Failures whose container was not examined because there were too many at once.",
		}),
		wake: make(chan struct{}, 1), watched: map[string]*watched{}, oom: map[string]kill{}, looks: rate.NewLimiter(lookRate, lookBurst),
	}
}

// Set replaces the watched containers, and the watched process (0: none), which gets the name "".
func (w *Watcher) Set(containers []Container, pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make(map[string]*watched, len(containers)+1)
	for _, c := range containers {
		one := w.watched[c.ID]
		if one == nil {
			one = &watched{}
		}
		one.limited, one.running = c.Limited, c.Running
		next[c.ID] = one
	}
	if pid > 0 {
		one := w.watched[""]
		if one == nil || one.pid != pid {
			one = &watched{pid: pid, limited: true}
		}
		next[""] = one
	}
	if w.watched = next; len(next) > 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Run samples until ctx ends; it sleeps while nothing is watched.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if w.idle() {
			tick.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-w.wake:
			}
			tick.Reset(every)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			w.Sample(now)
		}
	}
}

func (w *Watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watched) == 0
}

// Sample reads the counters of all watched groups that have a limit.
func (w *Watcher) Sample(now time.Time) {
	w.find(now, findEvery)
	layout, err := w.layout()
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.watched {
		if c.limited && c.groups != nil {
			w.sample(layout, c, now)
		}
	}
}

func (w *Watcher) sample(layout hostfs.CgroupLayout, c *watched, now time.Time) {
	for i, path := range c.groups.limits() {
		if path == "" {
			continue
		}
		cpu, err := w.fs.CgroupCPU(layout, path)
		if err == nil {
			c.counters[i].add(sample{now, cpu})
		} else if c.pid != 0 {
			c.groups = nil // the process may have moved
			return
		}
	}
}

// find looks up the groups that are still missing, unless it did so recently.
func (w *Watcher) find(now time.Time, after time.Duration) {
	w.mu.Lock()
	wanted := map[string]bool{}
	for id, c := range w.watched {
		switch {
		case c.groups != nil:
		case c.pid != 0:
			c.groups, _ = w.groupsOf(c.pid)
		case c.running: // others have no processes, as in a crash loop
			wanted[id] = true
		}
	}
	if len(wanted) == 0 || now.Sub(w.found) < after {
		w.mu.Unlock()
		return
	}
	w.found = now
	w.mu.Unlock()
	// Without the lock, because a node has thousands of processes.
	pids, err := w.fs.PIDs()
	if err != nil {
		return
	}
	got := map[string]*groups{}
	for _, pid := range pids {
		if len(got) == len(wanted) {
			break
		}
		if g, id := w.groupsOf(pid); id != "" && wanted[id] && got[id] == nil {
			got[id] = g
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, g := range got {
		if c := w.watched[id]; c != nil {
			c.groups = g
		}
	}
}

// Group returns the path of the container's cgroup that has its CPU limit; empty if it is not
// known.
func (w *Watcher) Group(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.watched[id]; c != nil && c.groups != nil {
		return c.groups.cpu
	}
	return ""
}

// OOMKilled records an OOM kill in a container.
func (w *Watcher) OOMKilled(ev *event.Event) {
	if ev.Container == nil || ev.Container.ID == "" || ev.Task == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.oom) >= maxOOM {
		maps.DeleteFunc(w.oom, func(_ string, k kill) bool { return ev.Time.Sub(k.at) > oomFor })
	}
	if len(w.oom) < maxOOM {
		w.oom[ev.Container.ID] = kill{ev.Time, ev.Task.String()}
	}
}

// Metrics returns the watcher's metric.
func (w *Watcher) Metrics() prometheus.Collector { return w.skipped }
