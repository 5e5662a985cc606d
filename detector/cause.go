package detector

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kernosis/kernosis/detector/problem"
)

// dependency is that a rule's problems are consequences of another rule's, and hidden while
// these fire.
type dependency struct {
	effect, cause *ruleState
	equal         []places // where groups must say the same, of the fields that the cause has; none: one of the cause's hides all
}

// places are those of two fields in groupBy.
type places struct{ effect, cause int }

func newDependency(effect, cause *ruleState) *dependency {
	d := &dependency{effect: effect, cause: cause}
	for _, own := range slices.Sorted(maps.Keys(effect.Equal)) {
		if its := slices.Index(cause.GroupBy, effect.Equal[own]); its >= 0 {
			d.equal = append(d.equal, places{slices.Index(effect.GroupBy, own), its})
		}
	}
	return d
}

// links reports whether one problem may be the other's consequence. Of the overflow group
// nobody knows what it stands for.
func (d *dependency) links(effect, cause *entry) bool {
	if len(d.equal) == 0 {
		return true
	}
	if effect.p.Group == OverflowGroup || cause.p.Group == OverflowGroup {
		return false
	}
	for _, p := range d.equal {
		if groupPart(effect.p.Group, p.effect) != groupPart(cause.p.Group, p.cause) {
			return false
		}
	}
	return true
}

// groupPart returns a value of a group, as it is written there.
func groupPart(group string, place int) (part string) {
	for range place + 1 {
		part, group = cutPart(group)
	}
	return part
}

// hides reports whether a cause of the problem fires.
func (d *dependency) hides(en *entry) bool {
	s := d.cause.series
	if s.firing == 0 || len(d.equal) == 0 {
		return s.firing > 0
	}
	for _, c := range s.entries {
		if c.p.State == problem.Firing && d.links(en, c) {
			return true
		}
	}
	return false
}

// cause returns the rule whose firing problem hides this one, or "".
func cause(en *entry) string {
	for _, d := range en.rule.causes {
		if d.hides(en) {
			return d.cause.Name
		}
	}
	return ""
}

// causeChanged has others follow a problem that began or ceased to fire.
func (e *Engine) causeChanged(changed *entry) {
	s := changed.rule.series
	for _, d := range s.dependents {
		if len(d.equal) == 0 && s.firing > 1 {
			continue // others hide as before
		}
		var effects []*entry
		for _, en := range d.effect.series.entries {
			if en.rule == d.effect && en.p.State == problem.Firing && d.links(en, changed) {
				effects = append(effects, en)
			}
		}
		slices.SortFunc(effects, func(a, b *entry) int { return cmp.Compare(a.p.Group, b.p.Group) })
		for _, en := range effects {
			e.follow(en)
		}
	}
}

// follow has a problem follow the causes and mutes in force. A permanent one that is hidden or
// comes to light is announced; of temporary ones the next occurrence is.
func (e *Engine) follow(en *entry) {
	if en.p.State == problem.Pending {
		return
	}
	by, until := en.p.SuppressedBy, e.mutedUntil(en)
	if en.p.State == problem.Firing {
		by = cause(en)
	}
	announced := by != en.p.SuppressedBy || until.IsZero() != en.p.MutedUntil.IsZero()
	same := !announced && until.Equal(en.p.MutedUntil)
	en.p.SuppressedBy, en.p.MutedUntil = by, until
	if same || en.p.State != problem.Firing || en.rule.Temporary() {
		return
	}
	e.mark(en.rule.series)
	if announced {
		e.out = append(e.out, problem.Transition{Problem: en.copyOut(), Again: true})
	}
}

// followAll is follow of all problems.
func (e *Engine) followAll() {
	for _, s := range e.series {
		for _, en := range sortedEntries(s) {
			e.follow(en)
		}
	}
}
