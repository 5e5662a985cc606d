package hostfs

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// module is a module of the kernel, as /proc/modules has it.
type module struct {
	name  string
	size  uint64 // of code and data, in bytes
	state string // Live, Loading, Unloading
	base  uint64 // of its code; 0: the kernel hides it
}

// modules returns the kernel's modules. There are none where they can't be read, as in a kernel
// without modules.
func (f FS) modules() []module {
	text, err := f.read("/proc/modules", largeFile)
	if err != nil {
		return nil
	}
	var all []module
	for line := range strings.Lines(text) {
		w := strings.Fields(line) // name size users by-whom state address
		if len(w) < 6 {
			continue
		}
		size, errSize := strconv.ParseUint(w[1], 10, 64)
		base, errBase := strconv.ParseUint(w[5], 0, 64)
		if errSize == nil && errBase == nil {
			all = append(all, module{name: w[0], size: size, state: w[4], base: base})
		}
	}
	return all
}

// codeOf returns where the code of loaded modules is, by name: from the base on, as far as code
// and data would reach together, but not into another module. The init section of one that is
// still being loaded is elsewhere, so these are left out.
func codeOf(all []module) map[string]Range {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b module) int { return cmp.Compare(a.base, b.base) })
	out := make(map[string]Range, len(sorted))
	for i, m := range sorted {
		next := uint64(math.MaxUint64)
		if i+1 < len(sorted) {
			next = sorted[i+1].base
		}
		if m.base != 0 && m.state == "Live" {
			out[m.name] = Range{Start: m.base, End: min(m.base+m.size, next)}
		}
	}
	return out
}
