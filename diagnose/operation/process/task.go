package process

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
	"github.com/kernosis/kernosis/diagnose/operation"
)

// host is the node. Looks that may hang in the kernel are made with patience.
type host struct {
	operation.Host
	patient operation.Patience
}

// ErrTaskGone is returned if a task has ended, or if its PID has been reused.
var ErrTaskGone = errors.New("is gone")

// PIDParameters returns the parameters that name a task.
func PIDParameters(required bool, doc string) []operation.Parameter {
	return []operation.Parameter{
		{Name: "pid", Doc: doc, Kind: operation.Integer, Required: required, Max: 1 << 22}, // PID_MAX_LIMIT
		{Name: "startTime", Doc: "start time of that task since boot (73.12s); a task that reuses the PID is refused", Kind: operation.Duration},
	}
}

// Task returns the stat of the task that the parameters name.
func Task(h operation.Host, v operation.Values) (hostfs.Stat, error) {
	pid := int(v.Int("pid"))
	stat, err := h.FS.Stat(pid)
	switch {
	case IsGone(err):
		return stat, fmt.Errorf("process %d %w: it has ended", pid, ErrTaskGone)
	case err != nil:
		return stat, fmt.Errorf("examine process %d: %w", pid, err)
	}
	// /proc has the time in steps of 10 ms, the event has it exactly; either may be rounded.
	const step = 10 * time.Millisecond
	if v["startTime"] != "" {
		if d := stat.StartTime - v.Duration("startTime"); d > step || d < -step {
			return stat, fmt.Errorf("process %d %w: its PID was reused (by %s, started at %s)",
				pid, ErrTaskGone, display.Safe(stat.Comm, 64), stat.StartTime)
		}
	}
	return stat, nil
}

// IsGone reports whether an error means that a task has ended, rather than that it can't be read.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// Owner is the owner of a task or cgroup.
type Owner struct {
	Cgroup    string
	Container event.Container
	Unit      string
}

// OwnerOf returns the owner of a task. Of its cgroups in all hierarchies it uses one that names a
// container, or else a unit, or else the deepest.
func OwnerOf(ctx context.Context, h operation.Host, patient operation.Patience, pid int) (Owner, error) {
	return operation.Look(ctx, patient, operation.LookLimit, func() (o Owner, err error) {
		groups, err := h.FS.ProcCgroups(pid)
		if err != nil {
			return Owner{}, fmt.Errorf("read cgroups of process %d: %w", pid, err)
		}
		for _, g := range groups {
			a, _ := hostfs.ParseCgroupPath(g.Path)
			switch {
			case a.Container.ID != "" && o.Container.ID == "",
				a.Container.PodUID != "" && o.Container == (event.Container{}),
				a.Unit != "" && o.Unit == "" && o.Container == (event.Container{}),
				o.Container == (event.Container{}) && o.Unit == "" && len(g.Path) > len(o.Cgroup):
				o = Owner{Cgroup: g.Path, Container: a.Container, Unit: a.Unit}
			}
		}
		return o, nil
	})
}

// OwnerOfCgroup returns the owner of a cgroup.
func OwnerOfCgroup(path string) Owner {
	a, _ := hostfs.ParseCgroupPath(path)
	return Owner{Cgroup: path, Container: a.Container, Unit: a.Unit}
}

// String formats the owner like events do; empty if only the root cgroup is known.
func (o *Owner) String() string {
	ev := event.Event{Unit: o.Unit, Cgroup: &event.Cgroup{Path: display.Safe(o.Cgroup, operation.MaxShown)}}
	if o.Container != (event.Container{}) {
		ev.Container = &o.Container
	}
	return ev.Owner()
}

// In returns "" or " in pod …", for messages.
func (o *Owner) In() string {
	if s := o.String(); s != "" {
		return " in " + s
	}
	return ""
}

// OwnerResults returns the results that ReportOwner sets.
func OwnerResults() []operation.Result {
	return []operation.Result{
		{Name: "owner", Doc: "its pod and container, systemd unit or cgroup"},
		{Name: "podUID", Doc: "UID of its pod, derived from its cgroup"},
		{Name: "containerID", Doc: "runtime's ID of its container"},
		{Name: "cgroup", Doc: "its cgroup, relative to the hierarchy's root"},
	}
}

func ReportOwner(f *operation.Finding, o *Owner) {
	f.Text("owner", o.String())
	f.Text("podUID", o.Container.PodUID)
	f.Text("containerID", o.Container.ID)
	f.Text("cgroup", o.Cgroup)
}

// TaskName returns "comm[pid]".
func TaskName(comm string, pid int) string {
	return display.Safe(comm, 64) + "[" + strconv.Itoa(pid) + "]"
}
