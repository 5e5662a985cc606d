package detector

import (
	"slices"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// NewSince returns the names of the rules, except log rules, that are missing from an older set or
// match or count differently there: they may have missed events that the older rules got. It also
// returns those whose fault loses an older rule, and with it the problems that this rule began.
func (s *RuleSet) NewSince(older *RuleSet) (names []string) {
	for _, r := range s.rules {
		if r.isLog() {
			continue
		}
		o, ok := older.Rule(r.Name)
		if !ok || !r.sameProblem(o) || r.When != o.When || r.Threshold != o.Threshold || !slices.Equal(r.Events, o.Events) || s.losesPartner(r, older) {
			names = append(names, r.Name)
		}
	}
	return names
}

// losesPartner reports whether the older set has a rule of r's fault and condition whose problems
// end when s replaces that set.
func (s *RuleSet) losesPartner(r *Rule, older *RuleSet) bool {
	return slices.ContainsFunc(older.rules, func(o *Rule) bool {
		if o.Fault != r.Fault || o.Condition != r.Condition {
			return false
		}
		kept, ok := s.Rule(o.Name)
		return !ok || !kept.sameProblem(o)
	})
}

// ObserveLasting applies an event that was observed before and still holds, such as a filesystem
// that refuses writes, to rules that were not in force at that time. It does not count in a problem
// that such a rule already has. matched returns the rules in which it began or counted in a
// problem. See [Engine.Observe] for the rest.
func (e *Engine) ObserveLasting(ev *event.Event, rules []string, now event.Moment) (matched []string, _ []problem.Transition) {
	now = e.start(now)
	at := occurredAt(ev, now)
	e.act.ev = ev
	if of := e.byKind[ev.Kind]; of != nil {
		for _, r := range of.match {
			if !slices.Contains(rules, r.Name) || !r.reads(ev) || !e.test(r, r.when) {
				continue
			}
			if en := e.countsIn(r, ev); en == nil || en.p.State == problem.Resolved {
				e.occur(r, ev, at, now)
				matched = append(matched, r.Name)
			}
		}
	}
	e.act.ev = nil
	return matched, e.finish(now)
}
