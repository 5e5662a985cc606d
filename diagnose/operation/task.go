package operation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// errTaskGone is returned where a task has ended, or its number is another's by now.
var errTaskGone = errors.New("is gone")

// pidParameters are how a task is named.
func pidParameters(required bool, doc string) []Parameter {
	return []Parameter{
		{Name: "pid", Doc: doc, Kind: Integer, Required: required, Max: 1 << 22}, // PID_MAX_LIMIT
		{Name: "startTime", Doc: "when that task started, since boot (73.12s): refuses another one that has its number by now", Kind: Duration},
	}
}

// task returns what /proc says of the task that the parameters name.
func (h Host) task(v Values) (hostfs.Stat, error) {
	pid := int(v.Int("pid"))
	stat, err := h.FS.Stat(pid)
	switch {
	case goneTask(err):
		return stat, fmt.Errorf("process %d %w: it has ended", pid, errTaskGone)
	case err != nil:
		return stat, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// /proc tells it in steps of 10 ms, the event exactly; either may be rounded.
	const step = 10 * time.Millisecond
	if v["startTime"] != "" {
		if d := stat.StartTime - v.Duration("startTime"); d > step || d < -step {
			return stat, fmt.Errorf("process %d %w: its number was given again (to %s, started at %s)",
				pid, errTaskGone, display.Safe(stat.Comm, 64), stat.StartTime)
		}
	}
	return stat, nil
}

// goneTask tells a task that has ended from one that can't be looked at.
func goneTask(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// owner is whom a task or cgroup belongs to.
type owner struct {
	cgroup    string
	container event.Container
	unit      string
}

// owner tells whom a task belongs to: of its cgroups, on all hierarchies, the one
// that names a container, else a unit, else the deepest.
func (h Host) owner(pid int) (o owner, err error) {
	groups, err := h.FS.ProcCgroups(pid)
	if err != nil {
		return owner{}, fmt.Errorf("read cgroups of process %d: %w", pid, err)
	}
	for _, g := range groups {
		a, _ := hostfs.ParseCgroupPath(g.Path)
		switch {
		case a.Container.ID != "" && o.container.ID == "",
			a.Container.PodUID != "" && o.container == (event.Container{}),
			a.Unit != "" && o.unit == "" && o.container == (event.Container{}),
			o.container == (event.Container{}) && o.unit == "" && len(g.Path) > len(o.cgroup):
			o = owner{cgroup: g.Path, container: a.Container, unit: a.Unit}
		}
	}
	return o, nil
}

// patientOwner is owner, for no longer than a look may take.
func (h Host) patientOwner(ctx context.Context, patient patience, pid int) (owner, error) {
	return look(ctx, patient, lookLimit, func() (owner, error) { return h.owner(pid) })
}

// ownerOfCgroup tells whose a cgroup is.
func ownerOfCgroup(path string) owner {
	a, _ := hostfs.ParseCgroupPath(path)
	return owner{cgroup: path, container: a.Container, unit: a.Unit}
}

// String names the owner as events do; empty: only the root group is known.
func (o *owner) String() string {
	ev := event.Event{Unit: o.unit, Cgroup: &event.Cgroup{Path: display.Safe(o.cgroup, maxShown)}}
	if o.container != (event.Container{}) {
		ev.Container = &o.container
	}
	return ev.Owner()
}

// in is "" or " in pod …", for messages.
func (o *owner) in() string {
	if s := o.String(); s != "" {
		return " in " + s
	}
	return ""
}

// ownerResults are those that finding.owner sets.
func ownerResults() []Result {
	return []Result{
		{"owner", "pod and container, systemd unit or cgroup it belongs to"},
		{"podUID", "UID of its pod, by its cgroup"},
		{"containerID", "runtime's id of its container"},
		{"cgroup", "its cgroup, from the hierarchy's root"},
	}
}

func (f *finding) owner(o *owner) {
	f.text("owner", o.String())
	f.text("podUID", o.container.PodUID)
	f.text("containerID", o.container.ID)
	f.text("cgroup", o.cgroup)
}

// taskName is "comm[pid]".
func taskName(comm string, pid int) string {
	return display.Safe(comm, 64) + "[" + strconv.Itoa(pid) + "]"
}

// pauseFor pauses for d, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
