package operation

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// netMaxCgroups bounds how many groups are watched: a pod has some containers, each
	// a handful of levels deep.
	netMaxCgroups = 64
	// netThrottleWindow is twenty periods of the usual length.
	netThrottleWindow = "2s"
)

// CheckCPUThrottled checks whether a CPU limit holds back a cgroup.
func CheckCPUThrottled(h Host) Builtin {
	return Builtin{
		Name: "check-cpu-throttled",
		Doc: "Checks whether a CPU limit held back a cgroup, one above it, or those of a pod or process, in at least " +
			"threshold percent of the limit's periods during the window. The verdict CPUThrottled names the group and the limit.",
		Effect: Check,
		Parameters: []Parameter{
			{Name: "cgroup", Doc: "cgroup from the hierarchy's root; comes before podUID and pid", Kind: String},
			{Name: "podUID", Doc: "pod whose containers are watched", Kind: String},
			{Name: "pid", Doc: "process whose cgroup is watched", Kind: Integer, Max: netPIDMax},
			{Name: "startTime", Doc: "when that process started, since boot: refuses another that has its number by now", Kind: Duration},
			netWindowParameter(netThrottleWindow),
			{Name: "threshold", Doc: "percent of the periods in which the group ran out of its quota", Kind: Integer, Default: "25", Max: 100},
		},
		Results: []Result{
			{"throttledCgroup", "group with the limit that held it back most"},
			{"quota", "CPU time it may use in a period"},
			{"period", "length of a period"},
			{"throttledPercent", "periods of the window in which it ran out of the quota, in percent"},
			{"throttledTime", "time it had to wait, on cgroup v1 added up over CPUs"},
			{"note", "what could not be looked at, or was left out"},
		},
		Run: func(ctx context.Context, call *Call) (Output, error) {
			v := call.Parameters
			layout, err := h.FS.CgroupLayout()
			if err != nil {
				return Output{}, fmt.Errorf("find cgroups: %w", err)
			}
			r := newNetReport(nil)
			groups, err := h.netCPUGroups(layout, v, r)
			if err != nil {
				return Output{}, err
			}
			worst, err := h.netThrottled(ctx, layout, groups, v.Duration("window"))
			if err != nil {
				return Output{}, err
			}
			r.text("throttledCgroup", worst.path)
			r.text("quota", worst.limit.Quota.String())
			r.text("period", worst.limit.Period.String())
			r.uint("throttledPercent", worst.percent())
			r.text("throttledTime", worst.waited.String())
			if worst.periods == 0 || worst.percent() < uint64(v.Int("threshold")) {
				return Output{}, refutedBy("CPUNotThrottled", "%s; %d groups looked at", worst, len(groups))
			}
			return r.output(verdictOf("CPUThrottled", "%s", worst)), nil
		},
	}
}

// netThrottle is how a limit acted on a group in a time.
type netThrottle struct {
	path               string
	limit              hostfs.CgroupCPULimit
	periods, throttled uint64
	waited, window     time.Duration
}

func (t netThrottle) percent() uint64 {
	if t.periods == 0 {
		return 0
	}
	return t.throttled * 100 / t.periods
}

func (t netThrottle) String() string {
	group := "cgroup " + display.Safe(t.path, netMaxName*2)
	switch {
	case t.path == "":
		return "no group has a CPU limit"
	case t.periods == 0:
		return fmt.Sprintf("%s, limit %s, did not run in %s", group, netCPULimit(t.limit), t.window)
	}
	return fmt.Sprintf("%s ran out of its limit of %s in %d of %d periods (%d %%) in %s, and waited %s",
		group, netCPULimit(t.limit), t.throttled, t.periods, t.percent(), t.window, t.waited.Round(time.Millisecond))
}

func netCPULimit(l hostfs.CgroupCPULimit) string {
	if l.Quota == 0 || l.Period == 0 {
		return "none"
	}
	return fmt.Sprintf("%dm (%s in each %s)", l.Quota*1000/l.Period, l.Quota, l.Period)
}

// netCPUGroups returns the groups that the parameters name and all above them, each once.
func (h Host) netCPUGroups(layout hostfs.CgroupLayout, v Values, r *finding) ([]string, error) {
	var named []string
	switch {
	case v["cgroup"] != "":
		named = []string{v["cgroup"]}
	case v["podUID"] != "":
		for pid, err := range h.netProcesses(func(at string) bool {
			a, _ := hostfs.ParseCgroupPath(at)
			return a.Container.PodUID == v["podUID"]
		}) {
			if err != nil {
				return nil, err
			}
			if group, err := h.netCPUGroup(layout, pid); err == nil {
				named = append(named, group)
			}
		}
		if len(named) == 0 {
			return nil, fmt.Errorf("no process of pod %s on this node", display.Safe(v["podUID"], netMaxName))
		}
	case v["pid"] != "":
		pid := int(v.Int("pid"))
		if err := h.netProcessLives(pid, v); err != nil {
			return nil, err
		}
		group, err := h.netCPUGroup(layout, pid)
		if err != nil {
			return nil, err
		}
		named = []string{group}
	default:
		return nil, errors.New("cgroup, podUID or pid has to be given")
	}
	var groups []string
	seen := map[string]bool{}
	for _, g := range named {
		for at := path.Clean("/" + g); at != "/" && !seen[at]; at = path.Dir(at) {
			if len(groups) == netMaxCgroups {
				r.note("more than %d groups: the others were not looked at", netMaxCgroups)
				return groups, nil
			}
			seen[at] = true
			groups = append(groups, at)
		}
	}
	return groups, nil
}

// netCPUGroup returns the cgroup of a process on the hierarchy with the CPU controller.
func (h Host) netCPUGroup(layout hostfs.CgroupLayout, pid int) (string, error) {
	groups, err := h.FS.ProcCgroups(pid)
	if err != nil {
		return "", fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	_, v1 := layout.Controllers["cpu"]
	for _, g := range groups {
		if !v1 && g.Hierarchy == 0 || v1 && netHasController(g.Controllers, "cpu") {
			return g.Path, nil
		}
	}
	return "", errors.New("process " + strconv.Itoa(pid) + " has no cpu cgroup")
}

// netThrottled watches groups for a time, and returns the one that was held back most, or
// any with a limit, or none.
func (h Host) netThrottled(ctx context.Context, layout hostfs.CgroupLayout, groups []string, window time.Duration) (worst netThrottle, err error) {
	before := map[string]hostfs.CgroupCPU{}
	var readErr error
	for _, g := range groups {
		c, err := h.FS.CgroupCPU(layout, g)
		if err != nil {
			readErr = errors.Join(readErr, err)
			continue
		}
		before[g] = c
	}
	if len(before) == 0 {
		return worst, readErr
	}
	if err := pauseFor(ctx, window); err != nil {
		return worst, err
	}
	for _, g := range groups {
		was, ok := before[g]
		if !ok {
			continue
		}
		limit, err := h.FS.CgroupCPULimit(layout, g)
		if err != nil || limit.Quota == 0 {
			continue
		}
		now, err := h.FS.CgroupCPU(layout, g)
		if err != nil {
			continue // it was removed
		}
		t := netThrottle{
			path: g, limit: limit, window: window,
			periods: netIncrease(was.Periods, now.Periods), throttled: netIncrease(was.Throttled, now.Throttled),
			waited: max(0, now.ThrottledTime-was.ThrottledTime),
		}
		if worst.path == "" || t.percent() > worst.percent() || t.percent() == worst.percent() && t.periods > worst.periods {
			worst = t
		}
	}
	return worst, nil
}
