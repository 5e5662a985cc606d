package hostfs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Pressure is the pressure stall information of one resource: the share of time, in
// percent of the last 10, 60 and 300 s, in which tasks waited for it.
type Pressure struct {
	Some, Full PressureLine // at least one task; all that were not idle
}

// PressureLine is one line of it.
type PressureLine struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// ParsePressure reads the text of /proc/pressure/* and memory.pressure. CPU has no
// "full" before 5.13.
func ParsePressure(s string) (p Pressure, err error) {
	found := false
	for line := range strings.Lines(s) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var into *PressureLine
		switch fields[0] {
		case "some":
			into, found = &p.Some, true
		case "full":
			into = &p.Full
		default:
			continue
		}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "avg10":
				into.Avg10, err = strconv.ParseFloat(value, 64)
			case "avg60":
				into.Avg60, err = strconv.ParseFloat(value, 64)
			case "avg300":
				into.Avg300, err = strconv.ParseFloat(value, 64)
			case "total":
				var us uint64
				us, err = strconv.ParseUint(value, 10, 53)
				into.Total = time.Duration(us) * time.Microsecond
			}
			if err != nil {
				return Pressure{}, fmt.Errorf("pressure: %s: %w", key, err)
			}
		}
	}
	if !found {
		return Pressure{}, fmt.Errorf("pressure: %w", errSyntax)
	}
	return p, nil
}

// Pressure reads that of the node: "cpu", "memory" or "io".
func (f FS) Pressure(resource string) (Pressure, error) {
	return f.pressure("/proc/pressure/" + resource)
}

// CgroupPressure reads that of memory of a cgroup. cgroup v1 has none.
func (f FS) CgroupPressure(l CgroupLayout, path string) (Pressure, error) {
	dir, _, err := l.dir("memory", path)
	if err != nil {
		return Pressure{}, err
	}
	return f.pressure(dir + "/memory.pressure")
}

func (f FS) pressure(p string) (Pressure, error) {
	s, err := f.read(p, smallFile)
	if err != nil {
		return Pressure{}, err
	}
	return ParsePressure(s)
}

// ParseMemInfo reads the text of /proc/meminfo: sizes in bytes by name.
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
	if err != nil {
		return nil, err
	}
	return ParseMemInfo(s), nil
}
