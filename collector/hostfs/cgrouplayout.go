package hostfs

import (
	"fmt"
	"strings"
)

// CgroupMode says which cgroup hierarchies a node has.
type CgroupMode string

// The modes. Hybrid: v1 controllers, and a v2 hierarchy besides them.
const (
	CgroupNone   CgroupMode = "none"
	CgroupV1     CgroupMode = "v1"
	CgroupV2     CgroupMode = "v2"
	CgroupHybrid CgroupMode = "hybrid"
)

// CgroupLayout says where the cgroup hierarchies are mounted on the node.
type CgroupLayout struct {
	Mode        CgroupMode
	Unified     string            // mount point of the v2 hierarchy; empty: none
	Controllers map[string]string // v1 controller ("memory") to mount point
}

// isV1Controller reports whether an option of a v1 hierarchy is a controller, unlike rw, xattr,
// name=systemd and others.
func isV1Controller(option string) bool {
	switch option {
	case "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc",
		"net_cls", "net_prio", "perf_event", "pids", "rdma":
		return true
	}
	return false
}

// CgroupLayout reads the layout from the mount table.
func (f FS) CgroupLayout() (CgroupLayout, error) {
	t, err := f.MountTable()
	if err != nil {
		return CgroupLayout{}, err
	}
	return cgroupLayout(t.Mounts()), nil
}

// cgroupLayout finds the hierarchies among mounts. The first mount of each hierarchy is used, but a
// mount of the whole is preferred to one of a part (a bind mount in a container).
func cgroupLayout(mounts []Mount) CgroupLayout {
	l := CgroupLayout{Mode: CgroupNone, Controllers: map[string]string{}}
	for _, whole := range []bool{true, false} {
		for _, m := range mounts {
			if (m.Root == "/") != whole {
				continue
			}
			switch m.FSType {
			case "cgroup2":
				if l.Unified == "" {
					l.Unified = m.Path
				}
			case "cgroup":
				for c := range strings.SplitSeq(m.SuperOptions, ",") {
					if _, dup := l.Controllers[c]; !dup && isV1Controller(c) {
						l.Controllers[c] = m.Path
					}
				}
			}
		}
	}
	switch v1 := len(l.Controllers) > 0; {
	case v1 && l.Unified != "":
		l.Mode = CgroupHybrid
	case v1:
		l.Mode = CgroupV1
	case l.Unified != "":
		l.Mode = CgroupV2
	}
	return l
}

// Group returns the path of a process in the hierarchy of a controller, from the process' cgroups.
func (l CgroupLayout) Group(of []ProcCgroup, controller string) (path string, ok bool) {
	_, v1 := l.Controllers[controller]
	for _, g := range of {
		if v1 && hasOption(g.Controllers, controller) || !v1 && g.Hierarchy == 0 {
			return g.Path, true
		}
	}
	return "", false
}

// dir returns the directory of a cgroup in the hierarchy of a controller, and whether that is v1.
// It returns ErrPath for a path without its top ("…/").
func (l CgroupLayout) dir(controller, path string) (dir string, v1 bool, err error) {
	rel, err := below(path)
	if err != nil {
		return "", false, fmt.Errorf("cgroup %q: %w", path, err)
	}
	mount, v1 := l.Controllers[controller]
	if !v1 {
		mount = l.Unified
	}
	if mount == "" {
		return "", false, fmt.Errorf("cgroup %q: no hierarchy has %s", path, controller)
	}
	return mount + rel, v1, nil
}
