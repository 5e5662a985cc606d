package detector

import (
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
)

// link checks the references between rules and builds the set.
func (l *loader) link() (*RuleSet, error) {
	l.useLeftOut()
	types := slices.Sorted(maps.Keys(l.conditions))
	for _, name := range l.order {
		r := l.rules[name]
		if r.Condition != "" && l.conditions[r.Condition] == nil {
			if event.KubernetesCondition(r.Condition) {
				r.Errorf("condition", "condition %s is reserved for Kubernetes, like all that end in Pressure", r.Condition)
			} else {
				r.Errorf("condition", "condition %q is not registered under conditions%s", r.Condition, document.Suggest(r.Condition, types))
			}
		}
		for i, d := range r.DependsOn {
			switch {
			case d == r.Name:
				r.item("dependsOn", i, "a rule can't depend on itself")
			case l.named(d) == nil:
				r.item("dependsOn", i, "unknown rule %q%s", d, document.Suggest(d, l.order))
			}
		}
	}
	l.equals()
	l.faults()
	l.cycles()
	patterns, owners := l.patterns()
	if err := l.mistakes(); err != nil {
		return nil, err
	}
	l.dropLeftOut()
	set := &RuleSet{patterns: patterns, owners: owners}
	for _, name := range l.order {
		set.rules = append(set.rules, l.rules[name].Rule)
		if l.rules[name].readsPodLabels() {
			set.podLabels = append(set.podLabels, name)
		}
	}
	for _, t := range types {
		set.conditions = append(set.conditions, l.conditions[t].ConditionSpec)
	}
	return set, nil
}

// equals checks the fields of equal: the rule's own must be in its groupBy, and the groupBy of
// each cause must contain at least one of the others.
func (l *loader) equals() {
	for _, name := range l.order {
		r := l.rules[name]
		if r.Keys["equal"] == nil {
			continue
		}
		if len(r.DependsOn) == 0 || len(r.Equal) == 0 {
			r.Errorf("equal", "requires dependsOn and at least one field, such as {device.name: device.name}")
		}
		for _, own := range slices.Sorted(maps.Keys(r.Equal)) {
			if !slices.Contains(r.GroupBy, own) {
				r.Errorf("equal", "%s is not in this rule's groupBy%s", own, document.Suggest(own, r.GroupBy))
			}
			its := r.Equal[own]
			var known []string
			for _, d := range r.DependsOn {
				if c := l.named(d); c != nil {
					known = append(known, c.GroupBy...)
				}
			}
			if len(known) > 0 && !slices.Contains(known, its) {
				r.Errorf("equal", "%s is not in groupBy of rule %s%s", its, strings.Join(r.DependsOn, ", "), document.Suggest(its, known))
			}
		}
		for i, d := range r.DependsOn {
			if c := l.named(d); c != nil && len(r.Equal) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(r.Equal)), func(its string) bool { return slices.Contains(c.GroupBy, its) }) {
				r.item("dependsOn", i, "equal names no field of %s's groupBy (%s), so any of its problems would hide this rule's", d, strings.Join(c.GroupBy, ", "))
			}
		}
	}
}

// faults checks that rules with the same fault can share a problem: their groups must have
// the same number of parts. It skips fallback rules, which never report at the same time as
// the rules they stand in for.
func (l *loader) faults() {
	first := make(map[[2]string]*loadedRule)
	for _, name := range l.order {
		r := l.rules[name]
		if len(r.FallbackFor) > 0 {
			continue
		}
		key := [2]string{r.Fault, r.Condition}
		if f := first[key]; f == nil {
			first[key] = r
		} else if r.awaits() || f.awaits() {
			r.Errorf("fault", "rule %q has the same fault: a rule with absentFor can't share one", f.Name)
		} else if len(f.GroupBy) != len(r.GroupBy) {
			r.Errorf("fault", "shares fault %q with rule %q, so groupBy must have the same number of fields", r.Fault, f.Name)
		}
	}
}

// cycles reports each cycle of dependsOn once.
func (l *loader) cycles() {
	const (
		unseen = iota
		open
		done
	)
	state := make(map[string]int)
	var path []string
	var visit func(name string)
	visit = func(name string) {
		r := l.rules[name]
		state[name] = open
		path = append(path, name)
		for i, d := range r.DependsOn {
			switch {
			case l.rules[d] == nil || d == name:
			case state[d] == unseen:
				visit(d)
			case state[d] == open:
				circle := append(slices.Clone(path[slices.Index(path, d):]), d)
				r.item("dependsOn", i, "dependency cycle: %s", strings.Join(circle, " → "))
			}
		}
		path = path[:len(path)-1]
		state[name] = done
	}
	for _, name := range l.order {
		if state[name] == unseen {
			visit(name)
		}
	}
}

// Selection is a layer for [Load] that enables only some of its files. Rules may use the
// conditions that the other files register, and may name their rules in dependsOn, which has no
// effect. A fallbackFor an event kind is ignored if only rules of the other files use that kind.
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
