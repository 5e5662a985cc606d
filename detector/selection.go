package detector

import (
	"io/fs"
	"slices"
)

// Selection is a layer for [Load] of which only the selected files are in force. Rules may name
// rules of the other files in dependsOn, which has no effect, and use the conditions that those
// files register. A fallbackFor an event kind is ignored if only rules of the other files use it.
type Selection struct {
	fs.FS
	Selected func(file string) bool
}

// named returns the rule of that name, in force or left out, or nil.
func (l *loader) named(name string) *loadedRule {
	if r := l.rules[name]; r != nil {
		return r
	}
	return l.leftOut.rules[name]
}

// useLeftOut registers the conditions of files left out that a rule in force sets.
func (l *loader) useLeftOut() {
	for _, r := range l.rules {
		if c := l.leftOut.conditions[r.Condition]; c != nil && l.conditions[r.Condition] == nil {
			l.conditions[r.Condition] = c
		}
	}
}

// dropLeftOut removes what rules in force say of rules left out.
func (l *loader) dropLeftOut() {
	for _, r := range l.rules {
		r.DependsOn = slices.DeleteFunc(r.DependsOn, func(d string) bool { return l.rules[d] == nil })
		if len(r.DependsOn) == 0 {
			r.Equal = nil
		}
		r.FallbackFor = slices.DeleteFunc(r.FallbackFor, func(stem string) bool { return l.leftOut.uses(stem) && !l.uses(stem) })
	}
}

// uses reports whether a rule uses events of the stem.
func (l *loader) uses(stem string) bool {
	for _, r := range l.rules {
		if slices.Contains(r.stems, stem) {
			return true
		}
	}
	return false
}
