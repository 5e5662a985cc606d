package observe

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// look returns the state of a container or, with "", of the process given to set. It takes at
// most lookLimit. If it is called too often it reads nothing, and returns only what was sampled.
func (v *vitals) look(id string, now time.Time) facts {
	v.find(now, findNow)
	layout, err := v.layout()
	if err != nil {
		return facts{}
	}
	v.mu.Lock()
	f := facts{Pressure: -1}
	if k, ok := v.oom[id]; ok && id != "" && now.Sub(k.at) < oomFor {
		f.Known, f.OOM, f.OOMAgo = true, k.task, max(0, now.Sub(k.at))
	}
	c := v.watched[id]
	if c == nil || c.groups == nil {
		v.mu.Unlock()
		return f
	}
	f.Known = true
	if c.limited {
		v.throttling(layout, c, now, &f)
	}
	g, allowed := *c.groups, v.take(now)
	v.mu.Unlock()
	if allowed {
		v.state(layout, &g, time.Now().Add(lookLimit), &f)
	}
	return f
}

// take reports whether another inspection is allowed, and counts those that are not.
func (v *vitals) take(now time.Time) bool {
	may := v.looks.AllowN(now, 1)
	if !may {
		v.skipped.Inc()
	}
	return may
}

// state reads the current state of the groups.
func (v *vitals) state(layout hostfs.CgroupLayout, g *groups, end time.Time, f *facts) {
	if p, err := v.fs.CgroupPressure(layout, "cpu", g.cpu); err == nil {
		f.Pressure = p.Some
	}
	if frozen, err := v.fs.CgroupFrozen(layout, g.freezer); err == nil {
		f.Frozen = frozen
	}
	pids, more, err := v.fs.CgroupProcs(layout, g.memory, maxProcesses)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			f.Ending = "its cgroup is gone"
		}
		return
	}
	if f.Processes = len(pids); len(pids) == 0 {
		if !more {
			f.Ending = "it has no processes left"
		}
		return
	}
	killed := 0
	defer func() {
		if killed == len(pids) {
			f.Ending = "all of its processes are being killed"
		}
	}()
	for _, pid := range pids {
		if f.Threads >= maxThreads || time.Now().After(end) {
			return
		}
		threads, err := v.fs.ThreadStates(pid, maxThreads-f.Threads)
		if err != nil {
			continue
		}
		gone := len(threads) > 0
		for i := range threads {
			f.thread(pid, &threads[i])
			gone = gone && (threads[i].State == 'Z' || threads[i].State == 'X')
		}
		if !gone {
			st, err := v.fs.ProcStatus(pid)
			gone = err == nil && st.Killed
		}
		if gone {
			killed++
		}
	}
}

// thread adds a thread to the facts.
func (f *facts) thread(pid int, t *hostfs.Stat) {
	f.Threads++
	main := int(t.PID) == pid
	name := func(to *[]string) {
		if main && len(*to) < maxNamed {
			*to = append(*to, taskName(t))
		}
	}
	switch t.State {
	case 'T', 't':
		name(&f.Stopped)
	case 'D':
		f.InSleep++
		if !f.Frozen { // cgroup v1 shows frozen tasks in this state
			name(&f.Blocked)
		}
	}
}

// groupsOf returns the cgroups of a process, and the ID of the container that they belong to.
func (v *vitals) groupsOf(pid int) (*groups, string) {
	layout, err := v.layout()
	if err != nil {
		return nil, ""
	}
	list, err := v.fs.ProcCgroups(pid)
	if err != nil {
		return nil, ""
	}
	var g groups
	id := ""
	for controller, to := range map[string]*string{"cpu": &g.cpu, "memory": &g.memory, "freezer": &g.freezer} {
		p, ok := layout.Group(list, controller)
		if !ok {
			continue
		}
		*to = p
		// A container may create groups below its own; the limits are on the container's.
		if top, of := containerTop(p); of != "" {
			*to, id = top, of
		}
	}
	if id != "" {
		g.pod = podAbove(g.cpu)
	}
	return &g, id
}

// maxComm bounds a process' name, which the process itself sets.
const maxComm = 64

func taskName(t *hostfs.Stat) string {
	return display.Safe(t.Comm, maxComm) + "[" + strconv.Itoa(int(t.PID)) + "]"
}

// containerTop returns the topmost group of a container, and the container's ID. The container
// itself has created the groups below.
func containerTop(path string) (top, id string) {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		a, ok := hostfs.ParseCgroupPath(path[:end])
		if !ok || a.Container.ID == "" || id != "" && a.Container.ID != id {
			break
		}
		top, id = path[:end], a.Container.ID
	}
	return top, id
}

// podAbove returns the parent of a container's group if it is its pod's, else "".
func podAbove(path string) string {
	above := path[:max(0, strings.LastIndexByte(path, '/'))]
	if a, ok := hostfs.ParseCgroupPath(above); !ok || a.Container.PodUID == "" || a.Container.ID != "" {
		return ""
	}
	return above
}

const (
	// sampleEvery and samples result in the ten seconds for which throttling is reported, which is
	// the usual period of a probe.
	sampleEvery = 2 * time.Second
	samples     = 6
	// levels: a container's own limit and its pod's. If a pod has one container, kubelet sets both
	// to the same value, and which one the kernel charges is random (docs/kernel-quirks.md).
	levels = 2
)

// counters are the samples of one group in the last ten seconds.
type counters struct {
	ring [samples]sample // the newest at (n-1) % samples
	n    int
}

type sample struct {
	at time.Time
	hostfs.CgroupCPU
}

func (c *counters) add(s sample) {
	c.ring[c.n%samples] = s
	c.n++
}

// oldest returns the earliest sample of the last ten seconds, or the newest one if all are older.
func (c *counters) oldest(now time.Time) (s sample, ok bool) {
	for i := max(0, c.n-samples); i < c.n; i++ {
		if s = c.ring[i%samples]; now.Sub(s.at) <= (samples-1)*sampleEvery {
			break
		}
	}
	return s, c.n > 0
}

// throttling adds the limit that throttled a container most.
func (v *vitals) throttling(layout hostfs.CgroupLayout, c *watched, now time.Time, f *facts) {
	for i, path := range c.groups.limits() {
		if path == "" {
			continue
		}
		t, ok := v.throttled(layout, path, &c.counters[i], now)
		if ok && (f.ThrottledIn == 0 || t.percent > f.Throttled) {
			f.Throttled, f.ThrottledIn, f.Quota, f.Period, f.PodLimit = t.percent, t.in, t.limit.Quota, t.limit.Period, i > 0
		}
	}
}

// throttle is the effect of a limit on a group.
type throttle struct {
	percent uint32 // of in
	in      time.Duration
	limit   hostfs.CgroupCPULimit
}

// throttled compares a group's counters with those of up to ten seconds ago. It returns false if
// they can't be compared, or if the group has no limit.
func (v *vitals) throttled(layout hostfs.CgroupLayout, path string, c *counters, now time.Time) (t throttle, ok bool) {
	oldest, ok := c.oldest(now)
	if !ok {
		return t, false
	}
	cpu, err := v.fs.CgroupCPU(layout, path)
	if err != nil {
		return t, false
	}
	t.in = now.Sub(oldest.at)
	if t.in < sampleEvery/4 || cpu.Periods < oldest.Periods {
		return t, false
	}
	if t.limit, err = v.fs.CgroupCPULimit(layout, path); err != nil || t.limit.Quota == 0 {
		return t, false // the limit was removed
	}
	// The throttled time is the sum over all CPUs, and whole periods are counted although the
	// group is throttled only at their end. Both values are too high, so use the smaller one.
	waited := cpu.ThrottledTime - oldest.ThrottledTime
	periods := time.Duration(cpu.Throttled-oldest.Throttled) * t.limit.Period
	t.percent = uint32(min(100, max(0, 100*min(waited, periods)/t.in)))
	return t, true
}
