package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// CgroupCPU counts how a CPU limit acted on one cgroup.
type CgroupCPU struct {
	Periods       uint64 // in which it had work to run; 0: no limit was ever set
	Throttled     uint64 // those in which it used up its quota
	ThrottledTime time.Duration
}

// CgroupCPU reads the throttling counters of the cpu cgroup at path.
func (f FS) CgroupCPU(l CgroupLayout, path string) (c CgroupCPU, err error) {
	dir, v1, err := l.dir("cpu", path)
	if err != nil {
		return c, err
	}
	var n uint64
	key, unit := "throttled_usec", time.Microsecond
	if v1 {
		key, unit = "throttled_time", time.Nanosecond
	}
	keys := map[string]*uint64{"nr_periods": &c.Periods, "nr_throttled": &c.Throttled, key: &n}
	if err := f.readKeyed(dir+"/cpu.stat", keys); err != nil {
		return CgroupCPU{}, err
	}
	c.ThrottledTime = time.Duration(min(n, uint64(1<<63-1)/uint64(unit))) * unit
	return c, nil
}

// CgroupCPULimit is the CPU time that a cgroup may use in each period; Quota 0: no limit.
type CgroupCPULimit struct {
	Quota, Period time.Duration
}

// CgroupCPULimit reads the limit of the cpu cgroup at path itself; its ancestors have their own.
func (f FS) CgroupCPULimit(l CgroupLayout, path string) (c CgroupCPULimit, err error) {
	dir, v1, err := l.dir("cpu", path)
	if err != nil {
		return c, err
	}
	var file, quota, period string
	if v1 {
		file = dir + "/cpu.cfs_quota_us"
		if quota, err = f.readValue(file); err == nil {
			period, err = f.readValue(dir + "/cpu.cfs_period_us")
		}
	} else {
		file = dir + "/cpu.max"
		var s string
		s, err = f.readValue(file)
		if errors.Is(err, fs.ErrNotExist) && f.exists(dir+"/cgroup.procs") {
			return c, nil // the root, or the controller is not enabled here
		}
		quota, period, _ = strings.Cut(s, " ")
	}
	if err != nil {
		return c, err
	}
	p, err := strconv.ParseUint(period, 10, 32)
	if err != nil {
		return c, fmt.Errorf("parse %s: period: %w", file, err)
	}
	c.Period = time.Duration(p) * time.Microsecond
	if quota == "max" || quota == "-1" {
		return c, nil
	}
	q, err := strconv.ParseUint(quota, 10, 53) // as microseconds it fits a Duration
	if err != nil {
		return CgroupCPULimit{}, fmt.Errorf("parse %s: quota: %w", file, err)
	}
	c.Quota = time.Duration(q) * time.Microsecond
	return c, nil
}

// readKeyed reads a file of "key value" lines; the longest is memory.stat.
func (f FS) readKeyed(p string, into map[string]*uint64) error {
	s, err := f.read(p, 16*smallFile)
	if err != nil {
		return err
	}
	if err := parseKeyed(s, into); err != nil {
		return fmt.Errorf("parse %s: %w", f.Path(p), err)
	}
	return nil
}

// parseKeyed stores the values of the wanted keys. Missing keys keep their values, because kernels
// and controllers differ in their keys.
func parseKeyed(s string, into map[string]*uint64) error {
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		p := into[key]
		if !ok || p == nil {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		*p = n
	}
	return nil
}

// CgroupFrozen reports whether the cgroup at path, or one above it, is frozen. Processes in it do
// not run, whatever /proc shows as their state. On cgroup v1 path is the path in the freezer
// hierarchy.
func (f FS) CgroupFrozen(l CgroupLayout, path string) (bool, error) {
	dir, v1, err := l.dir("freezer", path)
	if err != nil {
		return false, err
	}
	var state string
	var frozen uint64
	if v1 {
		state, err = f.readValue(dir + "/freezer.state")
	} else {
		err = f.readKeyed(dir+"/cgroup.events", map[string]*uint64{"frozen": &frozen})
	}
	if errors.Is(err, fs.ErrNotExist) && f.exists(dir+"/cgroup.procs") {
		return false, nil // the root
	}
	return state == "FROZEN" || frozen == 1, err
}
