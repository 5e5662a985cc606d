package hostfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CgroupLayout says where the cgroup hierarchies are mounted on the node. There may be v1
// controllers and a v2 hierarchy besides them.
type CgroupLayout struct {
	Unified     string            // mount point of the v2 hierarchy; empty: none
	Controllers map[string]string // v1 controller ("memory") to mount point
}

// Versions names the hierarchies: "v1", "v2", "hybrid" (both) or "none".
func (l CgroupLayout) Versions() string {
	switch v1, v2 := len(l.Controllers) > 0, l.Unified != ""; {
	case v1 && v2:
		return "hybrid"
	case v1:
		return "v1"
	case v2:
		return "v2"
	}
	return "none"
}

// isV1Controller reports whether an option of a v1 hierarchy is a controller, unlike rw or
// name=systemd.
func isV1Controller(option string) bool {
	switch option {
	case "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc",
		"net_cls", "net_prio", "perf_event", "pids", "rdma":
		return true
	}
	return false
}

// CgroupLayout reads the layout from the mount table of the node's init or, if init is hidden, of this
// process: the hierarchies are usually mounted at the same place for all.
func (f FS) CgroupLayout() (CgroupLayout, error) {
	mounts, err := mountsIn(f.Path("/proc/1/mountinfo"))
	if errors.Is(err, fs.ErrNotExist) {
		mounts, err = mountsIn(f.Path("/proc/self/mountinfo"))
	}
	return cgroupLayout(mounts), err
}

// cgroupLayout finds the hierarchies among mounts. The first mount of each hierarchy is used, but a
// mount of the whole is preferred to one of a part (a bind mount in a container).
func cgroupLayout(mounts []Mount) CgroupLayout {
	l := CgroupLayout{Controllers: map[string]string{}}
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

// unknownLevel replaces the unknown name of a cgroup in a path.
const unknownLevel = "/…"

// cgroupNamespace returns the path on the v2 hierarchy of the cgroup that this process sees as the
// root, as a process in a container does, or "" for the hierarchy's root. It looks only once,
// because a process stays in its cgroup namespace.
func (f FS) cgroupNamespace() string {
	if f.namespace != nil {
		if known := f.namespace.Load(); known != nil {
			return *known
		}
	}
	t, err := f.MountTable()
	if err != nil {
		return ""
	}
	depth := 0
	for _, m := range t.Mounts() {
		if m.FSType == "cgroup2" { // the node's own mount shows the hierarchy's root
			up, _ := splitUp(m.Root)
			depth = max(depth, up)
		}
	}
	namespace := strings.Repeat(unknownLevel, depth)
	mount := f.Path(cgroupLayout(t.Mounts()).Unified)
	if own, err := ownCgroupRoot(); err == nil && depth > 0 {
		dirs, _ := filepath.Glob(mount + strings.Repeat("/*", depth)) // fails for a malformed pattern only
		for _, dir := range dirs {
			if info, err := os.Stat(dir); err == nil && os.SameFile(info, own) {
				namespace = strings.TrimPrefix(dir, mount)
			}
		}
	}
	if f.namespace != nil {
		f.namespace.Store(&namespace)
	}
	return namespace
}

// ownCgroupRoot returns the directory of the cgroup that this process sees as the root.
func ownCgroupRoot() (os.FileInfo, error) {
	mounts, err := OwnMounts()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.FSType == "cgroup2" && m.Root == "/" {
			return os.Stat(m.Path)
		}
	}
	return nil, os.ErrNotExist
}

// splitUp returns the number of leading ".." in a path, and the rest.
func splitUp(p string) (up int, below string) {
	for strings.HasPrefix(p+"/", "/../") {
		up, p = up+1, p[len("/.."):]
	}
	return up, p
}

// fromCgroupRoot converts a path in a cgroup namespace to one from the hierarchy's root. If the
// names above are unknown, the result begins with "…/".
func fromCgroupRoot(namespace, p string) string {
	up, below := splitUp(p)
	for ; up > 0 && namespace != ""; up-- {
		namespace = namespace[:strings.LastIndexByte(namespace, '/')]
	}
	if up > 0 || strings.Contains(namespace, unknownLevel) {
		return cutTop + strings.TrimPrefix(below, "/")
	}
	return path.Clean("/" + namespace + below)
}

// CgroupFinder finds the path of a cgroup by its id, while it exists, on the default (v2)
// hierarchy.
type CgroupFinder struct{ mount *os.File }

// OpenCgroupFinder opens the v2 hierarchy; the caller must Close it. Find needs
// CAP_DAC_READ_SEARCH.
func (f FS) OpenCgroupFinder() (*CgroupFinder, error) {
	layout, err := f.CgroupLayout()
	if err != nil {
		return nil, err
	}
	if layout.Unified == "" {
		return nil, fmt.Errorf("open cgroup finder: no cgroup2 mount: %w", os.ErrNotExist)
	}
	mount, err := os.Open(f.Path(layout.Unified))
	if err != nil {
		return nil, err
	}
	return &CgroupFinder{mount: mount}, nil
}

// fileIDKernfs is FILEID_KERNFS (v5.5, 33c5ac917554): handles that contain a 64-bit kernfs id.
const fileIDKernfs = 0xfe

// Find returns the path from the hierarchy's root, or ESTALE for a removed cgroup.
func (c *CgroupFinder) Find(id uint64) (string, error) {
	handle := unix.NewFileHandle(fileIDKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(c.mount.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("open_by_handle_at", err)
	}
	defer func() { _ = unix.Close(fd) }() // O_PATH: closing loses no data
	// The descriptor is ours, so read our /proc, not the node's.
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	rel, ok := strings.CutPrefix(path, c.mount.Name())
	if !ok || strings.HasSuffix(rel, " (deleted)") {
		return "", unix.ESTALE
	}
	return "/" + strings.TrimPrefix(rel, "/"), nil
}

// Close closes the mount. It is idempotent.
func (c *CgroupFinder) Close() error {
	if c == nil || c.mount == nil {
		return nil
	}
	err := c.mount.Close()
	c.mount = nil
	return err
}
