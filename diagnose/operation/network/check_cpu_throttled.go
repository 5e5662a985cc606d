package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

const (
	// maxCgroups bounds how many cgroups are watched: a pod has some containers, each a few levels
	// deep.
	maxCgroups = 64
	// throttleWindow is 20 periods of the default length.
	throttleWindow = "2s"
)

func CheckCPUThrottled(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-cpu-throttled",
		Doc: "Checks whether a CPU limit throttles a cgroup, pod or process. Verdict CPUThrottled, which names the cgroup and limit: a limit throttled " +
			"the cgroup, or one of its ancestors, in at least threshold percent of the limit's periods during window.",
		Effect: operation.Check,
		Parameters: append(process.PIDParameters(false, "process whose cgroup is watched"),
			operation.Parameter{Name: "cgroup", Doc: "cgroup, relative to the hierarchy's root; takes precedence over podUID and pid", Kind: operation.String},
			operation.Parameter{Name: "podUID", Doc: "pod whose containers are watched", Kind: operation.String},
			windowParameter(throttleWindow),
			operation.Parameter{Name: "threshold", Doc: "percent of periods in which the cgroup exhausted its quota", Kind: operation.Integer, Default: "25", Max: 100}),
		Results: []operation.Result{
			{Name: "throttledCgroup", Doc: "cgroup with the limit that throttled most"},
			{Name: "quota", Doc: "its CPU time per period"},
			{Name: "period", Doc: "length of a period"},
			{Name: "throttledPercent", Doc: "percent of the periods during window in which it exhausted the quota"},
			{Name: "throttledTime", Doc: "throttled time; on cgroup v1 summed over CPUs"},
			operation.NoteResult(),
		},
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			v := call.Parameters
			layout, err := h.FS.CgroupLayout()
			if err != nil {
				return operation.Output{}, fmt.Errorf("find cgroups: %w", err)
			}
			r := newReport(nil)
			groups, err := cpuGroups(h, layout, v, r)
			if err != nil {
				return operation.Output{}, err
			}
			worst, err := throttled(h, ctx, layout, groups, v.Duration("window"), r)
			if err != nil {
				return operation.Output{}, err
			}
			r.Text("throttledCgroup", worst.path)
			r.Text("quota", worst.limit.Quota.String())
			r.Text("period", worst.limit.Period.String())
			r.Uint("throttledPercent", worst.percent())
			r.Text("throttledTime", worst.waited.String())
			if worst.periods == 0 || worst.percent() < uint64(v.Int("threshold")) {
				if len(r.Notes) > 0 {
					return operation.Output{}, fmt.Errorf("%s; %s", worst, strings.Join(r.Notes, "; "))
				}
				return operation.Output{}, operation.RefutedBy("CPUNotThrottled", "%s; %d cgroups examined", worst, len(groups))
			}
			return r.Output(operation.VerdictOf("CPUThrottled", "%s", worst)), nil
		},
	}
}

// throttle is how a limit affected a cgroup during a window.
type throttle struct {
	path               string
	limit              hostfs.CgroupCPULimit
	periods, throttled uint64
	waited, window     time.Duration
}

func (t throttle) percent() uint64 {
	if t.periods == 0 {
		return 0
	}
	return t.throttled * 100 / t.periods
}

func (t throttle) String() string {
	group := "cgroup " + display.Safe(t.path, maxName*2)
	switch {
	case t.path == "":
		return "no cgroup has a CPU limit"
	case t.periods == 0:
		return fmt.Sprintf("%s, limit %s, did not run in %s", group, cpuLimit(t.limit), t.window)
	}
	return fmt.Sprintf("%s exhausted its limit of %s in %d of %d periods (%d %%) in %s, and was throttled for %s",
		group, cpuLimit(t.limit), t.throttled, t.periods, t.percent(), t.window, t.waited.Round(time.Millisecond))
}

func cpuLimit(l hostfs.CgroupCPULimit) string {
	if l.Quota == 0 || l.Period == 0 {
		return "none"
	}
	return fmt.Sprintf("%dm (%s in each %s)", l.Quota*1000/l.Period, l.Quota, l.Period)
}

// cpuGroups returns the cgroups that the parameters name and all their ancestors, each once.
func cpuGroups(h operation.Host, layout hostfs.CgroupLayout, v operation.Values, r *operation.Finding) ([]string, error) {
	var named []string
	switch {
	case v["cgroup"] != "":
		named = []string{v["cgroup"]}
	case v["podUID"] != "":
		for pid, err := range processes(h, ofPod(v["podUID"])) {
			if err != nil {
				return nil, err
			}
			if group, err := cpuGroup(h, layout, pid); err == nil {
				named = append(named, group)
			}
		}
		if len(named) == 0 {
			return nil, fmt.Errorf("no process of pod %s on this node", display.Safe(v["podUID"], maxName))
		}
	case v["pid"] != "":
		stat, err := process.Task(h, v)
		if err != nil {
			return nil, err
		}
		group, err := cpuGroup(h, layout, int(stat.PID))
		if err != nil {
			return nil, err
		}
		named = []string{group}
	default:
		return nil, errors.New("parameter cgroup, podUID or pid is required")
	}
	var groups []string
	seen := map[string]bool{}
	for _, g := range named {
		for at := path.Clean("/" + g); at != "/" && !seen[at]; at = path.Dir(at) {
			if len(groups) == maxCgroups {
				r.Note("more than %d cgroups: the others were not examined", maxCgroups)
				return groups, nil
			}
			seen[at] = true
			groups = append(groups, at)
		}
	}
	return groups, nil
}

// cpuGroup returns the cgroup of a process in the hierarchy with the CPU controller.
func cpuGroup(h operation.Host, layout hostfs.CgroupLayout, pid int) (string, error) {
	groups, err := h.FS.ProcCgroups(pid)
	if err != nil {
		return "", fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	g, ok := layout.Group(groups, "cpu")
	if !ok {
		return "", fmt.Errorf("process %d has no cpu cgroup", pid)
	}
	return g, nil
}

// throttled watches cgroups during a window, and returns the cgroup that was throttled most. If
// none was throttled, it returns any cgroup with a limit, or else the zero value. It notes cgroups
// that can't be read, except removed ones.
func throttled(h operation.Host, ctx context.Context, layout hostfs.CgroupLayout, groups []string, window time.Duration, r *operation.Finding) (worst throttle, err error) {
	before := map[string]hostfs.CgroupCPU{}
	var readErr error
	unread := func(err error) {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Note("%v", err)
		}
	}
	for _, g := range groups {
		c, err := h.FS.CgroupCPU(layout, g)
		if err != nil {
			unread(err)
			readErr = errors.Join(readErr, err)
			continue
		}
		before[g] = c
	}
	if len(before) == 0 {
		return worst, readErr
	}
	if err := operation.Pause(ctx, window); err != nil {
		return worst, err
	}
	for _, g := range groups {
		was, ok := before[g]
		if !ok {
			continue
		}
		limit, err := h.FS.CgroupCPULimit(layout, g)
		if err == nil && limit.Quota == 0 {
			continue
		}
		var now hostfs.CgroupCPU
		if err == nil {
			now, err = h.FS.CgroupCPU(layout, g)
		}
		if err != nil {
			unread(err)
			continue
		}
		t := throttle{
			path: g, limit: limit, window: window,
			periods: increase(was.Periods, now.Periods), throttled: increase(was.Throttled, now.Throttled),
			waited: max(0, now.ThrottledTime-was.ThrottledTime),
		}
		if worst.path == "" || t.percent() > worst.percent() || t.percent() == worst.percent() && t.periods > worst.periods {
			worst = t
		}
	}
	return worst, nil
}
