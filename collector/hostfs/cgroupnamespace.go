package hostfs

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// unknownLevel stands for the name of a control group that is not known.
const unknownLevel = "/…"

// cgroupNamespace returns the path on the v2 hierarchy of the control group that this process
// sees as the root, as one in a container does; empty: the hierarchy's root. It looks once: a
// process stays in its cgroup namespace.
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

// ownCgroupRoot returns the directory of the control group that this process sees as the root.
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

// splitUp splits a path in how many levels it begins with that lead up, and what follows.
func splitUp(p string) (up int, below string) {
	for strings.HasPrefix(p+"/", "/../") {
		up, p = up+1, p[len("/.."):]
	}
	return up, p
}

// fromCgroupRoot returns a path in a cgroup namespace from the hierarchy's root. Where the names
// above it are not known it begins with "…/".
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
