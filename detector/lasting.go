package detector

import (
	"slices"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// NewSince returns the names of the rules that are not in an older set, or match or count
// otherwise there, log rules left out: they may miss events that the older rules got.
func (s *RuleSet) NewSince(older *RuleSet) (names []string) {
	for _, r := range s.rules {
		if r.isLog() {
			continue
		}
		if o, ok := older.Rule(r.Name); !ok || !r.sameProblem(o) || r.When != o.When || r.Threshold != o.Threshold || !slices.Equal(r.Events, o.Events) {
			names = append(names, r.Name)
		}
	}
	return names
}

// ObserveLasting takes an event into account that was observed before and lasts, such as a
// filesystem that refuses writes, for rules that were not in force then. A problem that one of
// them has already keeps its count. matched are the rules of which it began or counts in one. See
// [Engine.Observe] for the rest.
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
