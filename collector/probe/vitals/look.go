package vitals

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Look returns the state of a container or, with "", of the process given to Set. It takes at
// most lookLimit. If it is called too often it reads nothing, and returns only what was sampled.
func (w *Watcher) Look(id string, now time.Time) Facts {
	w.find(now, findNow)
	layout, err := w.layout()
	if err != nil {
		return Facts{}
	}
	w.mu.Lock()
	f := Facts{Pressure: -1}
	if k, ok := w.oom[id]; ok && id != "" && now.Sub(k.at) < oomFor {
		f.Known, f.OOM, f.OOMAgo = true, k.task, max(0, now.Sub(k.at))
	}
	c := w.watched[id]
	if c == nil || c.groups == nil {
		w.mu.Unlock()
		return f
	}
	f.Known = true
	if c.limited {
		w.throttling(layout, c, now, &f)
	}
	g, allowed := *c.groups, w.take(now)
	w.mu.Unlock()
	if allowed {
		w.state(layout, &g, time.Now().Add(lookLimit), &f)
	}
	return f
}

// take reports whether another inspection is allowed, and counts those that are not.
func (w *Watcher) take(now time.Time) bool {
	may := w.looks.AllowN(now, 1)
	if !may {
		w.skipped++
	}
	return may
}

// state reads the current state of the groups.
func (w *Watcher) state(layout hostfs.CgroupLayout, g *groups, end time.Time, f *Facts) {
	if p, err := w.fs.CgroupPressure(layout, "cpu", g.cpu); err == nil {
		f.Pressure = p.Some
	}
	if frozen, err := w.fs.CgroupFrozen(layout, g.freezer); err == nil {
		f.Frozen = frozen
	}
	pids, _, err := w.fs.CgroupProcs(layout, g.memory, maxProcesses)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			f.Ending = "its cgroup is gone"
		}
		return
	}
	if f.Processes = len(pids); len(pids) == 0 {
		f.Ending = "it has no processes left"
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
		threads, err := w.fs.ThreadStates(pid, maxThreads-f.Threads)
		if err != nil {
			continue
		}
		gone := len(threads) > 0
		for i := range threads {
			f.thread(pid, &threads[i])
			gone = gone && (threads[i].State == 'Z' || threads[i].State == 'X')
		}
		if !gone {
			st, err := w.fs.ProcStatus(pid)
			gone = err == nil && st.Killed
		}
		if gone {
			killed++
		}
	}
}

// thread adds a thread to the facts.
func (f *Facts) thread(pid int, t *hostfs.Stat) {
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
func (w *Watcher) groupsOf(pid int) (*groups, string) {
	layout, err := w.layout()
	if err != nil {
		return nil, ""
	}
	list, err := w.fs.ProcCgroups(pid)
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
