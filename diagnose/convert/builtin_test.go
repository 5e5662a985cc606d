package convert

import (
	"maps"
	"slices"
	"strings"
	"testing"

	builtins "github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
)

// The equivalents of KubeDiag's processors exist, and so do the built-ins that notes recommend.
func TestCounterpartsAreBuiltins(t *testing.T) {
	all := catalog.All(builtins.Host{})
	is := func(name string) bool { _, ok := builtins.Lookup(all, name); return ok }
	names := counterparts()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := names[name]
		if c.builtin != "" && !is(c.builtin) {
			t.Errorf("%s becomes %s, which is no built-in", name, c.builtin)
		}
		for _, rest := range strings.Split(c.note, "the built-in ")[1:] {
			if advised, _, _ := strings.Cut(rest, " "); !is(advised) {
				t.Errorf("%s: %s is advised, which is no built-in", name, advised)
			}
		}
		if c.builtin == "" && c.note == "" {
			t.Errorf("%s has no counterpart, and no advice", name)
		}
	}
	// Everything that KubeDiag gave to every operation is a parameter here.
	taken := map[string]bool{"node": true} // set by the Diagnosis; no built-in needs it
	for i := range all {
		for _, p := range all[i].Parameters {
			taken[p.Name] = true
		}
	}
	for theirs, ours := range parameterNames() {
		if !taken[ours] {
			t.Errorf("%s becomes %s, which no built-in takes", theirs, ours)
		}
	}
}
