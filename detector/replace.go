package detector

import (
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// Replace switches to another rule set. A problem is kept if its rule still has the same name,
// fault, condition and groupBy (periods and texts may have changed; the new ones apply from the
// next event). Firing problems of other rules resolve. A permanent problem that the new rules hide
// or reveal is announced. Conditions whose type was removed disappear from [Engine.Conditions]
// without a transition. The returned slice is valid until the next method call on the engine.
func (e *Engine) Replace(rules *RuleSet, now event.Moment) []problem.Transition {
	now = e.start(now)
	oldSeries, oldRules, oldConditions := e.series, e.byName, e.conditions
	// Resolving evaluates causes. Install the new rules first, so that the old ones no longer hide
	// or reveal problems.
	e.install(rules)
	clear(e.limits.spent)
	for name, r := range e.byName {
		if old := oldRules[name]; old != nil {
			r.errors, r.overflow, r.absence, r.limited = old.errors, old.overflow, old.absence, old.limited
			if r.RateLimit == old.RateLimit {
				r.budgets = old.budgets
			}
		}
		if r.awaits() {
			e.resume(r, now.Boot)
		}
	}
	for _, old := range oldConditions {
		for _, c := range e.conditions {
			if c.spec.Type == old.spec.Type {
				c.current = old.current
			}
		}
	}
	for _, s := range oldSeries {
		for _, en := range sortedEntries(s) {
			e.disarm(en)
			if r := e.byName[en.p.Rule]; r != nil && r.sameProblem(en.rule.Rule) && r.series.entries[en.p.Group] == nil {
				e.adopt(en, r)
				continue
			}
			if en.p.State == problem.Firing {
				en.become(problem.Resolved, now)
				e.emit(en)
			}
		}
	}
	e.followAll()
	for _, en := range e.entries() {
		if en.p.State == problem.Firing && !en.rule.Temporary() && e.blindTo(en.rule.Rule) {
			en.QuietFrom = now.Boot // the rule that watches it now may be new
		}
		e.arm(en)
	}
	for _, c := range e.conditions {
		c.dirty = true
	}
	e.absentDue = e.nextAbsence()
	return e.finish(now)
}

// adopt puts an entry under a rule of the set in force.
func (e *Engine) adopt(en *entry, r *ruleState) {
	en.rule = r
	if en.reporter != nil {
		en.reporter = e.byName[en.reporter.Name]
	}
	if en.reporter == nil { // that rule is gone
		en.reporter = r
	}
	r.series.entries[en.p.Group] = en
	switch en.p.State {
	case problem.Firing:
		r.series.firing++
	case problem.Resolved:
		r.series.resolved++
	case problem.Pending:
		// If the rule's "for" or threshold was removed or exchanged, start over.
		if r.Threshold.Count == 0 && en.FireAt == 0 || r.Threshold.Count > 0 && len(en.window.marks) == 0 {
			delete(r.series.entries, en.p.Group)
		}
	}
}
