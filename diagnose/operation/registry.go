package operation

import (
	"cmp"
	"slices"
)

// All returns the built-in operations, sorted by name.
func All(h Host) []Builtin {
	all := []Builtin{
		CheckRuntimeUnhealthy(h),
		CheckUnitFailed(h),
		DNSLookup(h),
		Pprof(h),
		RestartUnit(h),
		RuntimeHealth(h),
		SystemdUnit(h),
		Webhook(h),
	}
	slices.SortFunc(all, func(a, b Builtin) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Lookup returns the built-in of a name out of those of [All].
func Lookup(all []Builtin, name string) (*Builtin, bool) {
	i, ok := slices.BinarySearchFunc(all, name, func(b Builtin, name string) int { return cmp.Compare(b.Name, name) })
	if !ok {
		return nil, false
	}
	return &all[i], true
}
