package hostfs

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

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
