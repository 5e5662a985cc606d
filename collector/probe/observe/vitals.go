package observe

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

// container is a container with a probe.
type container struct {
	id      string // without the runtime; not empty
	limited bool   // it or its pod has a CPU limit
	running bool   // it has processes
}

// vitals inspects the containers whose probes fail, and kubelet. It is safe for concurrent use.
type vitals struct {
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

// watched is a container, or the process given to set.
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

// newVitals returns vitals that watch nothing.
func newVitals(fs hostfs.FS) *vitals {
	return &vitals{
		fs: fs, layout: sync.OnceValues(fs.CgroupLayout),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kernosis_probe_looks_skipped_total",
			Help: "Failures whose container was not examined because there were too many at once.",
		}),
		wake: make(chan struct{}, 1), watched: map[string]*watched{}, oom: map[string]kill{}, looks: rate.NewLimiter(lookRate, lookBurst),
	}
}

// set replaces the watched containers, and the watched process (0: none), which gets the name "".
func (v *vitals) set(containers []container, pid int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := make(map[string]*watched, len(containers)+1)
	for _, c := range containers {
		one := v.watched[c.id]
		if one == nil {
			one = &watched{}
		}
		one.limited, one.running = c.limited, c.running
		next[c.id] = one
	}
	if pid > 0 {
		one := v.watched[""]
		if one == nil || one.pid != pid {
			one = &watched{pid: pid, limited: true}
		}
		next[""] = one
	}
	if v.watched = next; len(next) > 0 {
		select {
		case v.wake <- struct{}{}:
		default:
		}
	}
}

// run samples until ctx ends; it sleeps while nothing is watched.
func (v *vitals) run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if v.idle() {
			tick.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-v.wake:
			}
			tick.Reset(sampleEvery)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			v.sample(now)
		}
	}
}

func (v *vitals) idle() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.watched) == 0
}

// sample reads the counters of all watched groups that have a limit.
func (v *vitals) sample(now time.Time) {
	v.find(now, findEvery)
	layout, err := v.layout()
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.watched {
		if c.limited && c.groups != nil {
			v.sampleOne(layout, c, now)
		}
	}
}

func (v *vitals) sampleOne(layout hostfs.CgroupLayout, c *watched, now time.Time) {
	for i, path := range c.groups.limits() {
		if path == "" {
			continue
		}
		cpu, err := v.fs.CgroupCPU(layout, path)
		if err == nil {
			c.counters[i].add(sample{now, cpu})
		} else if c.pid != 0 {
			c.groups = nil // the process may have moved
			return
		}
	}
}

// find looks up the groups that are still missing, unless it did so recently.
func (v *vitals) find(now time.Time, after time.Duration) {
	v.mu.Lock()
	wanted := map[string]bool{}
	for id, c := range v.watched {
		switch {
		case c.groups != nil:
		case c.pid != 0:
			c.groups, _ = v.groupsOf(c.pid)
		case c.running: // others have no processes, as in a crash loop
			wanted[id] = true
		}
	}
	if len(wanted) == 0 || now.Sub(v.found) < after {
		v.mu.Unlock()
		return
	}
	v.found = now
	v.mu.Unlock()
	// Without the lock, because a node has thousands of processes.
	pids, err := v.fs.PIDs()
	if err != nil {
		return
	}
	got := map[string]*groups{}
	for _, pid := range pids {
		if len(got) == len(wanted) {
			break
		}
		if g, id := v.groupsOf(pid); id != "" && wanted[id] && got[id] == nil {
			got[id] = g
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, g := range got {
		if c := v.watched[id]; c != nil {
			c.groups = g
		}
	}
}

// group returns the path of the container's cgroup that has its CPU limit; empty if it is not
// known.
func (v *vitals) group(id string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.watched[id]; c != nil && c.groups != nil {
		return c.groups.cpu
	}
	return ""
}

// oomKilled records an OOM kill in a container.
func (v *vitals) oomKilled(ev *event.Event) {
	if ev.Container == nil || ev.Container.ID == "" || ev.Task == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.oom) >= maxOOM {
		maps.DeleteFunc(v.oom, func(_ string, k kill) bool { return ev.Time.Sub(k.at) > oomFor })
	}
	if len(v.oom) < maxOOM {
		v.oom[ev.Container.ID] = kill{ev.Time, ev.Task.String()}
	}
}
