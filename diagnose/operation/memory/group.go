package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

// host is the node.
type host operation.Host

// memoryGroup is a memory cgroup to inspect.
type memoryGroup struct {
	layout hostfs.CgroupLayout
	path   string
	owner  process.Owner
}

// memoryGroupParameters returns the parameters that select a memory cgroup.
func memoryGroupParameters() []operation.Parameter {
	return append([]operation.Parameter{
		{Name: "cgroup", Doc: "memory cgroup, relative to the hierarchy's root", Kind: operation.String},
		{Name: "podUID", Doc: "pod UID: cgroup, or the cgroup of pid, must belong to this pod; alone: the pod's own cgroup", Kind: operation.String},
		{Name: "containerID", Doc: "runtime's ID of a container of that pod; selects its cgroup", Kind: operation.String},
	}, process.PIDParameters(false, "process whose memory cgroup is inspected if none is given")...)
}

// findMemoryGroup finds the cgroup that the parameters select: by cgroup, or else pid, or else
// podUID. If a podUID is given, it refuses cgroups of other pods, so that users who are limited to
// one pod see nothing else.
func (h host) findMemoryGroup(v operation.Values) (g memoryGroup, err error) {
	if g.layout, err = h.FS.CgroupLayout(); err != nil {
		return g, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	switch {
	case v["cgroup"] != "":
		if g.path, err = h.withMemory(g.layout, v["cgroup"]); err != nil && v["pid"] != "" {
			// An event's path may be of another hierarchy than the memory controller's.
			g.path, err = h.groupOfTask(g.layout, v)
		}
	case v["pid"] != "":
		g.path, err = h.groupOfTask(g.layout, v)
	case v["podUID"] != "":
		g.path, err = h.groupOfPod(g.layout, v["podUID"], v["containerID"])
	default:
		err = errors.New("parameter cgroup, pid or podUID is required")
	}
	if err != nil {
		return g, err
	}
	g.owner = process.OwnerOfCgroup(g.path)
	if uid := v["podUID"]; uid != "" && g.owner.Container.PodUID != uid {
		return g, fmt.Errorf("cgroup %s does not belong to pod %s", g.path, uid)
	}
	return g, nil
}

// withMemory returns the clean path of a cgroup, or an error if it does not exist.
func (h host) withMemory(l hostfs.CgroupLayout, group string) (string, error) {
	_, err := h.FS.CgroupMemoryUse(l, group)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("memory cgroup %s is gone or never existed", group)
	}
	return path.Clean("/" + group), err
}

func (h host) groupOfTask(l hostfs.CgroupLayout, v operation.Values) (string, error) {
	stat, err := process.Task(operation.Host(h), v)
	if err != nil {
		return "", err
	}
	group, err := h.FS.MemoryCgroup(l, int(stat.PID))
	if err != nil {
		return "", fmt.Errorf("find memory cgroup of process %d: %w", stat.PID, err)
	}
	return group, nil
}

// groupOfPod finds the cgroup of a pod, or of one of its containers, among those that kubelet
// creates.
func (h host) groupOfPod(l hostfs.CgroupLayout, uid, container string) (string, error) {
	var found string
	err := h.podGroups(l, func(group string, c *process.Owner) bool {
		if c.Container.PodUID != uid {
			return true
		}
		if found = group; container == "" {
			return false
		}
		found = ""
		children, _ := h.FS.CgroupChildren(l, group)
		for _, child := range children {
			if process.OwnerOfCgroup(group+"/"+child).Container.ID == container {
				found = group + "/" + child
			}
		}
		return false
	})
	switch {
	case err != nil:
		return "", err
	case found == "" && container != "":
		return "", fmt.Errorf("container %s of pod %s has no memory cgroup", container, uid)
	case found == "":
		return "", fmt.Errorf("pod %s has no memory cgroup", uid)
	}
	return found, nil
}

// podGroups calls fn for the cgroup of each pod until fn returns false. Kubelet's cgroups are
// kubepods[.slice] with the QoS classes below, and may be below another cgroup (kind).
func (h host) podGroups(l hostfs.CgroupLayout, fn func(group string, o *process.Owner) bool) error {
	const deepest, most = 5, 100_000
	type level struct {
		path  string
		depth int
	}
	queue := []level{{"/", 0}}
	for seen := 0; len(queue) > 0 && seen < most; seen++ {
		at := queue[0]
		queue = queue[1:]
		children, err := h.FS.CgroupChildren(l, at.path)
		if err != nil {
			if at.depth == 0 {
				return fmt.Errorf("find cgroups of pods: %w", err)
			}
			continue // removed in the meantime
		}
		for _, name := range children {
			group := path.Join(at.path, name)
			o := process.OwnerOfCgroup(group)
			switch {
			case o.Container.PodUID != "" && o.Container.ID == "":
				if !fn(group, &o) {
					return nil
				}
			case o.Container.ID == "" && o.Unit == "" && at.depth < deepest:
				queue = append(queue, level{group, at.depth + 1})
			}
		}
	}
	return nil
}

// effectiveLimit returns the smallest limit of the cgroup and its ancestors, and the cgroup that
// has it; 0: no limit. If pod is given, it considers only cgroups of that pod.
func (h host) effectiveLimit(ctx context.Context, g *memoryGroup, pod string) (limit uint64, group string) {
	for p := g.path; ctx.Err() == nil; p = path.Dir(p) {
		if pod != "" && process.OwnerOfCgroup(p).Container.PodUID != pod {
			break
		}
		if own, err := h.FS.CgroupMemoryLimit(g.layout, p); err == nil && own > 0 && (limit == 0 || own < limit) {
			limit, group = own, p
		}
		if p == "/" || p == "." {
			break
		}
	}
	return limit, group
}

// maxGroupProcs bounds the processes of a cgroup that are inspected individually.
const maxGroupProcs = 4096

// memorySample is the memory use of a cgroup and its processes at one moment.
type memorySample struct {
	at    time.Time
	use   hostfs.CgroupMemoryUse
	procs map[procID]procMemory
	more  bool // some processes were not inspected
}

// procID identifies a process even if its PID is reused.
type procID struct {
	pid   int
	start time.Duration
}

type procMemory struct {
	comm string
	rss  uint64
	anon uint64 // including swap
}

func (h host) sampleMemory(g *memoryGroup) (s memorySample, err error) {
	s = memorySample{at: time.Now(), procs: map[procID]procMemory{}}
	if s.use, err = h.FS.CgroupMemoryUse(g.layout, g.path); err != nil {
		return s, fmt.Errorf("read memory cgroup %s: %w", g.path, err)
	}
	pids, more, err := h.FS.CgroupProcs(g.layout, g.path, maxGroupProcs)
	if err != nil {
		return s, fmt.Errorf("list processes of cgroup %s: %w", g.path, err)
	}
	s.more = more
	for _, pid := range pids {
		stat, err := h.FS.Stat(pid)
		if err != nil {
			continue // ended
		}
		status, err := h.FS.ProcStatus(pid)
		if err != nil || status.KernelThread {
			continue
		}
		s.procs[procID{pid, stat.StartTime}] = procMemory{
			comm: display.Safe(stat.Comm, 64), rss: status.RSS, anon: status.AnonRSS + status.Swap,
		}
	}
	return s, nil
}

// sampleMemoryOver takes n samples, spread evenly over the window.
func (h host) sampleMemoryOver(ctx context.Context, g *memoryGroup, window time.Duration, n int) ([]memorySample, error) {
	samples := make([]memorySample, 0, n)
	for i := range n {
		if i > 0 {
			if err := operation.Pause(ctx, window/time.Duration(n-1)); err != nil {
				return nil, err
			}
		}
		s, err := h.sampleMemory(g)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// procUse is a process with a size.
type procUse struct {
	procID
	comm  string
	bytes int64
}

func (p *procUse) String() string {
	return process.TaskName(p.comm, p.pid) + "=" + signedSize(p.bytes)
}

// biggest returns the processes sorted by resident memory.
func (s *memorySample) biggest() []procUse {
	var out []procUse
	for id, p := range s.procs {
		out = append(out, procUse{id, p.comm, int64(p.rss)})
	}
	sortUse(out)
	return out
}

// grown returns the processes whose anonymous memory, including swap, grew between two samples.
// For a new process, all of its memory counts as growth.
func grown(from, to *memorySample) []procUse {
	var out []procUse
	for id, p := range to.procs {
		if by := int64(p.anon) - int64(from.procs[id].anon); by > 0 {
			out = append(out, procUse{id, p.comm, by})
		}
	}
	sortUse(out)
	return out
}

func sortUse(list []procUse) {
	slices.SortFunc(list, func(a, b procUse) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.pid, b.pid)) })
}

// reportUses sets the results for the first five processes of a list, and for the first one. For
// the name "top" they are topProcesses, topPID and topComm.
func reportUses(f *operation.Finding, name string, list []procUse) {
	const most = 5
	var shown []string
	for i := range list[:min(len(list), most)] {
		shown = append(shown, list[i].String())
	}
	f.Text(name+"Processes", strings.Join(shown, " "))
	if len(list) > 0 {
		f.Int(name+"PID", int64(list[0].pid))
		f.Text(name+"Comm", list[0].comm)
	}
}

// growth is the growth of a part of a cgroup's memory.
type growth struct {
	name string
	by   int64
}

// growths returns the growth of each part, sorted from largest to smallest.
func growths(from, to *hostfs.CgroupMemoryUse) []growth {
	by := func(a, b uint64) int64 { return int64(b) - int64(a) }
	out := []growth{
		{"anon", by(from.Anon+from.Swap, to.Anon+to.Swap)},
		{"file", by(from.File-min(from.File, from.Shmem), to.File-min(to.File, to.Shmem))},
		{"shmem", by(from.Shmem, to.Shmem)},
		{"kernel", by(from.Kernel, to.Kernel)},
	}
	slices.SortStableFunc(out, func(a, b growth) int { return cmp.Compare(b.by, a.by) })
	return out
}

// signedSize formats a size without a space, for lists. It may be negative.
func signedSize(n int64) string {
	return strings.ReplaceAll(display.Bytes(n), " ", "")
}
