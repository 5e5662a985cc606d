package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

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
func findMemoryGroup(h operation.Host, v operation.Values) (g memoryGroup, err error) {
	if g.layout, err = h.FS.CgroupLayout(); err != nil {
		return g, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	switch {
	case v["cgroup"] != "":
		if g.path, err = withMemory(h, g.layout, v["cgroup"]); err != nil && v["pid"] != "" {
			// An event's path may be of another hierarchy than the memory controller's.
			g.path, err = groupOfTask(h, g.layout, v)
		}
	case v["pid"] != "":
		g.path, err = groupOfTask(h, g.layout, v)
	case v["podUID"] != "":
		g.path, err = groupOfPod(h, g.layout, v["podUID"], v["containerID"])
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
func withMemory(h operation.Host, l hostfs.CgroupLayout, group string) (string, error) {
	_, err := h.FS.CgroupMemoryUse(l, group)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("memory cgroup %s is gone or never existed", group)
	}
	return path.Clean("/" + group), err
}

func groupOfTask(h operation.Host, l hostfs.CgroupLayout, v operation.Values) (string, error) {
	stat, err := process.Task(h, v)
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
func groupOfPod(h operation.Host, l hostfs.CgroupLayout, uid, container string) (string, error) {
	var found string
	err := podGroups(h, l, func(group string, c *process.Owner) bool {
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
func podGroups(h operation.Host, l hostfs.CgroupLayout, fn func(group string, o *process.Owner) bool) error {
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
func effectiveLimit(h operation.Host, ctx context.Context, g *memoryGroup, pod string) (limit uint64, group string) {
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
