package vitals

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// lookLimit bounds one look. A container of ten processes takes 0.3 ms.
	lookLimit = 20 * time.Millisecond
	// lookRate and lookBurst bound looks a second, and at once.
	lookRate, lookBurst = 20, 100
	// findEvery is how often the processes of the node are gone through for containers
	// that are not found yet; findNow is the same when a probe of one fails.
	findEvery, findNow = 10 * time.Second, time.Second
	// maxOOM containers with an OOM kill are remembered, each for oomFor.
	maxOOM = 256
	oomFor = time.Minute
	// Of a container so many processes are looked at, and so many threads.
	maxProcesses, maxThreads = 64, 256
	maxNamed                 = 3 // of them in a sentence
)

// Container is one to be watched.
type Container struct {
	ID      string // without the runtime
	Limited bool   // it has a CPU limit, or its pod has
	Running bool   // it has processes
}

// Watcher looks at containers. It is safe for concurrent use.
type Watcher struct {
	fs     hostfs.FS
	layout func() (hostfs.CgroupLayout, error)
	wake   chan struct{} // there is something to watch

	mu      sync.Mutex
	watched map[string]*watched
	oom     map[string]kill
	found   time.Time // when processes were gone through last
	looks   *rate.Limiter
	skipped uint64
}

// watched is a container, or a process that stands for its own group.
type watched struct {
	limited  bool
	running  bool
	pid      int // of a process; 0: a container
	groups   *groups
	counters [levels]counters
}

// groups are the paths of a container on the hierarchies.
type groups struct {
	cpu, memory, freezer string
	pod                  string // the one above cpu that is its pod's; empty: there is none
}

// limits are the groups whose CPU limits hold the container back, its own first.
func (g *groups) limits() [levels]string { return [levels]string{g.cpu, g.pod} }

type kill struct {
	at   time.Time
	task string
}

// New returns a Watcher of nothing.
func New(fs hostfs.FS) *Watcher {
	return &Watcher{
		fs: fs, layout: sync.OnceValues(fs.CgroupLayout),
		wake: make(chan struct{}, 1), watched: map[string]*watched{}, oom: map[string]kill{}, looks: rate.NewLimiter(lookRate, lookBurst),
	}
}

// Set says which containers are watched, and which process (0: none) besides, under the
// name "".
func (w *Watcher) Set(containers []Container, pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make(map[string]*watched, len(containers)+1)
	for _, c := range containers {
		one := w.watched[c.ID]
		if one == nil || c.ID == "" {
			one = &watched{}
		}
		if one.limited, one.running = c.Limited, c.Running; c.ID != "" {
			next[c.ID] = one
		}
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

// Run samples until ctx ends; it sleeps as long as nothing is watched.
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

// Sample reads the counters of all that is watched and has a limit.
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
			c.groups = nil // it may have moved
			return
		}
	}
}

// find looks for the groups of what has none yet, if that was not done lately.
func (w *Watcher) find(now time.Time, after time.Duration) {
	w.mu.Lock()
	wanted := map[string]bool{}
	for id, c := range w.watched {
		switch {
		case c.groups != nil:
		case c.pid != 0:
			c.groups, _ = w.groupsOf(c.pid)
		case c.running: // the processes of another, as of one in a crash loop, are not there
			wanted[id] = true
		}
	}
	if len(wanted) == 0 || now.Sub(w.found) < after {
		w.mu.Unlock()
		return
	}
	w.found = now
	w.mu.Unlock()
	// Without the lock: a node has thousands of processes.
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

// Group returns the path of a container's cgroup that has its CPU limit; empty: it is not
// known.
func (w *Watcher) Group(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.watched[id]; c != nil && c.groups != nil {
		return c.groups.cpu
	}
	return ""
}

// OOMKilled takes note of an OOM kill in a container.
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

// Skipped counts looks that were not made: too many at once.
func (w *Watcher) Skipped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.skipped
}
