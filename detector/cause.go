package detector

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kernosis/kernosis/detector/problem"
)

// dependency records that problems of the rule effect are consequences of problems of the rule
// cause, which hide them while they fire.
type dependency struct {
	effect, cause *ruleState
	equal         []places // group values that must be equal; none: any problem of the cause hides all
}

// places holds the indexes of two fields in the rules' groupBy.
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

// links reports whether effect may be a consequence of cause. The overflow group is not linked by
// fields, because its values are unknown.
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

// groupPart returns the value at a place of a group, in its escaped form.
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

// causeChanged updates the dependents of a problem that started or stopped firing.
func (e *Engine) causeChanged(changed *entry) {
	s := changed.rule.series
	for _, d := range s.dependents {
		if len(d.equal) == 0 && s.firing > 1 {
			continue // other problems still hide them
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

// follow applies the causes and mutes in force to a problem. It announces a permanent problem that
// becomes hidden or visible; a temporary one is announced with its next occurrence.
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

// followAll calls follow for all problems.
func (e *Engine) followAll() {
	for _, en := range e.entries() {
		e.follow(en)
	}
}
