package hostfs

import (
	"errors"
	"io/fs"
)

// CgroupFrozen reports whether the cgroup at path, or one above it, is frozen: its processes do not
// run, whatever their state says. On cgroup v1 path is the path in the freezer hierarchy.
func (f FS) CgroupFrozen(l CgroupLayout, path string) (bool, error) {
	dir, v1, err := l.dir("freezer", path)
	if err != nil {
		return false, err
	}
	if v1 {
		s, err := f.readValue(dir + "/freezer.state")
		if errors.Is(err, fs.ErrNotExist) && f.exists(dir+"/cgroup.procs") {
			return false, nil // the root
		}
		return s == "FROZEN", err
	}
	var frozen uint64
	err = f.readKeyed(dir+"/cgroup.events", map[string]*uint64{"frozen": &frozen})
	if errors.Is(err, fs.ErrNotExist) && f.exists(dir+"/cgroup.procs") {
		return false, nil // the root
	}
	return frozen == 1, err
}

// CgroupCPUPressure returns a cgroup's CPU pressure. cgroup v1 has none.
func (f FS) CgroupCPUPressure(l CgroupLayout, path string) (Pressure, error) {
	if _, v1 := l.Controllers["cpu"]; v1 {
		return Pressure{}, fs.ErrNotExist
	}
	dir, _, err := l.dir("cpu", path)
	if err != nil {
		return Pressure{}, err
	}
	return f.pressure(dir + "/cpu.pressure")
}
