package operation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// memoryGroup is a memory cgroup to be looked at.
type memoryGroup struct {
	layout hostfs.CgroupLayout
	path   string
	owner  owner
}

// memoryGroupParameters are how a memory cgroup is named.
func memoryGroupParameters() []Parameter {
	return append([]Parameter{
		{Name: "cgroup", Doc: "memory cgroup, from the hierarchy's root", Kind: String},
		{Name: "podUID", Doc: "UID of a pod: the cgroup, or that of pid, must be of it; alone, the pod's own cgroup is looked at", Kind: String},
		{Name: "containerID", Doc: "runtime's id of a container of that pod, whose cgroup is looked at", Kind: String},
	}, pidParameters(false, "process whose memory cgroup is looked at, where none is given")...)
}

// memoryGroup finds the cgroup that the parameters name: cgroup, else that of pid,
// else the pod's. With a podUID no other pod's is looked at, so who is bound to one
// pod sees nothing else.
func (h Host) memoryGroup(v Values) (g memoryGroup, err error) {
	if g.layout, err = h.FS.CgroupLayout(); err != nil {
		return g, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	switch {
	case v["cgroup"] != "":
		if g.path, err = h.withMemory(g.layout, v["cgroup"]); err != nil && v["pid"] != "" {
			// An event's path may be that of another hierarchy than memory's.
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
	g.owner = ownerOfCgroup(g.path)
	if uid := v["podUID"]; uid != "" && g.owner.container.PodUID != uid {
		return g, fmt.Errorf("cgroup %s is not of pod %s", g.path, uid)
	}
	return g, nil
}

// withMemory checks that a cgroup is there.
func (h Host) withMemory(l hostfs.CgroupLayout, group string) (string, error) {
	_, err := h.FS.CgroupMemoryUse(l, group)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("memory cgroup %s is gone, or was never there", group)
	}
	return path.Clean("/" + group), err
}

func (h Host) groupOfTask(l hostfs.CgroupLayout, v Values) (string, error) {
	stat, err := h.task(v)
	if err != nil {
		return "", err
	}
	group, err := h.FS.MemoryCgroup(l, int(stat.PID))
	if err != nil {
		return "", fmt.Errorf("find memory cgroup of process %d: %w", stat.PID, err)
	}
	return group, nil
}

// groupOfPod looks for a pod's cgroup, or a container's in it, where kubelet makes
// them.
func (h Host) groupOfPod(l hostfs.CgroupLayout, uid, container string) (string, error) {
	var found string
	err := h.podGroups(l, func(group string, c *owner) bool {
		if c.container.PodUID != uid {
			return true
		}
		if found = group; container == "" {
			return false
		}
		found = ""
		children, _ := h.FS.CgroupChildren(l, group)
		for _, child := range children {
			if ownerOfCgroup(group+"/"+child).container.ID == container {
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

// podGroups calls fn for each pod's cgroup until it returns false. Kubelet's groups are
// kubepods[.slice] with the QoS classes below, and may be below another (kind).
func (h Host) podGroups(l hostfs.CgroupLayout, fn func(group string, o *owner) bool) error {
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
				return fmt.Errorf("look for pods' cgroups: %w", err)
			}
			continue // removed meanwhile
		}
		for _, name := range children {
			group := path.Join(at.path, name)
			o := ownerOfCgroup(group)
			switch {
			case o.container.PodUID != "" && o.container.ID == "":
				if !fn(group, &o) {
					return nil
				}
			case o.container.ID == "" && o.unit == "" && at.depth < deepest:
				queue = append(queue, level{group, at.depth + 1})
			}
		}
	}
	return nil
}

// effectiveLimit is the smallest limit of the group and those above it, of a pod as far as
// they are the pod's, and whose it is; 0: there is none.
func (h Host) effectiveLimit(ctx context.Context, g *memoryGroup, pod string) (limit uint64, group string) {
	for p := g.path; ctx.Err() == nil; p = path.Dir(p) {
		if pod != "" && ownerOfCgroup(p).container.PodUID != pod {
			break
		}
		if m, err := h.FS.CgroupMemory(g.layout, p); err == nil && m.Limit > 0 && (limit == 0 || m.Limit < limit) {
			limit, group = m.Limit, p
		}
		if p == "/" || p == "." {
			break
		}
	}
	return limit, group
}
