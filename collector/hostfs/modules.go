package hostfs

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// Module is a kernel module.
type Module struct {
	Name  string
	Size  uint64 // of code and data, in bytes
	Live  bool   // false: it is being loaded or unloaded
	Base  uint64 // address of its code; 0: hidden by the kernel
	Taint string // letters of the taints that it causes: P proprietary, O out of tree, E unsigned …
}

// maxModules is far more than any node has.
const maxModules = 10_000

// ParseModules reads the text of /proc/modules.
func ParseModules(s string) []Module {
	var modules []Module
	for line := range strings.Lines(s) {
		fields := strings.Fields(line) // name size users by-whom state address (taint)
		if len(fields) < 6 || len(modules) == maxModules {
			continue
		}
		size, errSize := strconv.ParseUint(fields[1], 10, 64)
		base, errBase := strconv.ParseUint(fields[5], 0, 64)
		if errSize != nil || errBase != nil {
			continue
		}
		m := Module{Name: display.Safe(fields[0], 64), Size: size, Live: fields[4] == "Live", Base: base}
		if last := fields[len(fields)-1]; strings.HasPrefix(last, "(") {
			m.Taint = display.Safe(strings.Trim(last, "()+-"), 32) // + and -: it comes or goes
		}
		modules = append(modules, m)
	}
	return modules
}

// Modules returns the kernel's modules, none if the kernel has no module support.
func (f FS) Modules() ([]Module, error) {
	s, err := f.read("/proc/modules", largeFile)
	switch {
	case os.IsNotExist(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return ParseModules(s), nil
}

// codeOf returns the code range of each loaded module, by name: from its base, as far as code and
// data together would reach, but not into the next module. Modules that are still being loaded are
// omitted, because their init section is elsewhere.
func codeOf(all []Module) map[string]Range {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b Module) int { return cmp.Compare(a.Base, b.Base) })
	out := make(map[string]Range, len(sorted))
	for i, m := range sorted {
		next := uint64(math.MaxUint64)
		if i+1 < len(sorted) {
			next = sorted[i+1].Base
		}
		if m.Base != 0 && m.Live {
			out[m.Name] = Range{Start: m.Base, End: min(m.Base+m.Size, next)}
		}
	}
	return out
}
