package hostfs

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Pressure of a resource is the percentage of the last 10 s in which tasks waited for it (PSI).
type Pressure struct{ Some, Full float64 } // at least one task; all non-idle tasks

// ParsePressure parses /proc/pressure/* and memory.pressure. CPU has no "full" before 5.13.
func ParsePressure(s string) (p Pressure, err error) {
	found := false
	for line := range strings.Lines(s) {
		kind, rest, _ := strings.Cut(line, " ")
		value, _, _ := strings.Cut(strings.TrimPrefix(rest, "avg10="), " ")
		switch kind {
		case "some":
			p.Some, err = strconv.ParseFloat(value, 64)
			found = true
		case "full":
			p.Full, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return Pressure{}, fmt.Errorf("pressure: %s: %w", kind, err)
		}
	}
	if !found {
		return Pressure{}, fmt.Errorf("pressure: %w", errSyntax)
	}
	return p, nil
}

// Pressure returns the node's pressure of "cpu", "memory" or "io".
func (f FS) Pressure(resource string) (Pressure, error) {
	return parsed(f, "/proc/pressure/"+resource, smallFile, ParsePressure)
}

// CgroupPressure returns a cgroup's pressure of "cpu" or "memory". cgroup v1 has none.
func (f FS) CgroupPressure(l CgroupLayout, resource, path string) (Pressure, error) {
	dir, v1, err := l.dir(resource, path)
	if v1 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Pressure{}, err
	}
	return parsed(f, dir+"/"+resource+".pressure", smallFile, ParsePressure)
}

// ParseMemInfo returns the sizes in the text of /proc/meminfo, in bytes by name.
func ParseMemInfo(s string) map[string]uint64 {
	info := map[string]uint64{}
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(line, ":")
		fields := strings.Fields(value)
		const most = 256
		if !ok || len(fields) == 0 || len(info) == most {
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 53)
		if err != nil {
			continue
		}
		if len(fields) > 1 && fields[1] == "kB" {
			n <<= 10
		}
		info[key] = n
	}
	return info
}

// MemInfo reads /proc/meminfo.
func (f FS) MemInfo() (map[string]uint64, error) {
	s, err := f.read("/proc/meminfo", 4*smallFile)
	return ParseMemInfo(s), err
}
