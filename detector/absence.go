package detector

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// absence is the state of a rule with absentFor. Its times are since boot; zero means never.
type absence struct {
	Heard   time.Duration `json:"heard,omitempty"`   // time of the latest matching event
	Begun   time.Duration `json:"begun,omitempty"`   // start of the period without events: the sources first came up, or lines were lost
	Resumed time.Duration `json:"resumed,omitempty"` // when the rule last got its sources; zero while it lacks them
}

// due returns when the rule fires unless an event comes first, or zero while it lacks its sources. It
// leaves a source that was down time to catch up.
func (a *absence) due(r *Rule) time.Duration {
	if a.Resumed == 0 {
		return 0
	}
	return max(a.Heard+r.AbsentFor, a.Begun+r.AbsentFor, a.Resumed+min(r.AbsentFor, confirmWithin))
}

// awaits reports whether the rule detects missing events (absentFor).
func (r *Rule) awaits() bool { return r.AbsentFor > 0 }

// heard handles an event that a rule waits for.
func (e *Engine) heard(r *ruleState, at, now event.Moment) {
	r.absence.Heard = max(r.absence.Heard, at.Boot)
	if en := r.series.entries[""]; en != nil && en.p.State == problem.Firing && at.Boot > en.Since-r.AbsentFor {
		e.resolve(en, now)
	}
	e.mark(r.series) // it may have been the first event
	e.absentDue = e.nextAbsence()
}

// absencesOf updates the absence rules after a stem's source came up, went down or lost records.
func (e *Engine) absencesOf(stem string, st *stemState, lost bool, now time.Duration) {
	for _, r := range e.rules {
		if !r.awaits() || !r.looksAt(stem, st) {
			continue
		}
		e.resume(r, now)
		if lost && e.needs(r.Rule, stem, st, true) {
			r.absence.Begun = now // the awaited event may have been lost
		}
	}
	e.absentDue = e.nextAbsence()
}

// resume starts the rule's wait if it has its sources, and stops it if not: the awaited line may be
// in a log that is down.
func (e *Engine) resume(r *ruleState, now time.Duration) {
	a := &r.absence
	switch sees := e.sees(r.Rule); {
	case !sees:
		a.Resumed = 0
	case a.Resumed == 0:
		a.Resumed = now
		if a.Begun == 0 {
			a.Begun = now
		}
	}
}

// nextAbsence returns when the next absence rule fires, or zero.
func (e *Engine) nextAbsence() (next time.Duration) {
	for _, r := range e.rules {
		if r.awaits() && r.series.firing == 0 {
			next = earlier(next, r.absence.due(r.Rule))
		}
	}
	return next
}

// absent fires the rules whose events have not come in time.
func (e *Engine) absent(now time.Duration) {
	if e.absentDue == 0 || e.absentDue > now {
		return
	}
	for _, r := range e.rules {
		if !r.awaits() || r.series.firing > 0 {
			continue
		}
		if due := r.absence.due(r.Rule); due != 0 && due <= now {
			e.isAbsent(r, e.moment(due))
		}
	}
	e.absentDue = e.nextAbsence()
}

// isAbsent begins the problem of a rule whose event is overdue.
func (e *Engine) isAbsent(r *ruleState, at event.Moment) {
	en := e.place(r, nil, at)
	if en.p.State == problem.Resolved {
		r.series.resolved--
	}
	en.begin(r, at)
	en.reporter = r
	en.p.Count = 1
	en.p.Message, e.text, _ = r.message.render(e.act, e.text) // constant text, so it can't fail
	e.fire(en, at)
}

// unreportedAbsences describes the rules of a condition that have got no event yet and whose period
// is not over.
func (e *Engine) unreportedAbsences(c *conditionState) (names []string) {
	for _, r := range e.rules {
		if r.awaits() && r.series.condition == c && r.absence.Heard == 0 && r.series.firing == 0 {
			names = append(names, "the first event of rule "+r.Name)
		}
	}
	return names
}

// checkAbsence checks a rule with absentFor: no key of it may depend on an event.
func (r *loadedRule) checkAbsence() {
	if r.Keys["absentFor"] == nil {
		return
	}
	for _, key := range []string{"groupBy", "threshold", "for", "clearAfter", "clearWhen", "clearPattern", "latched", "severityWhen", "fault", "fallbackFor", "maxGroups"} {
		if r.Keys[key] != nil {
			r.Errorf(key, "can't be combined with absentFor: its problem belongs to the node, begins when no event arrives for that long, and ends with the next event")
		}
	}
	if r.isLog() && len(r.Logs) == 0 && r.Temporary() {
		r.Errorf("absentFor", "requires logs, such as [backup], or a condition: a rule for all logs can't fire while any log is down, and only a condition (Unknown) would show that")
	}
	ofAnyCheck := func(n named) bool { return n.stem == event.CheckStem && n.stems == nil }
	if r.Temporary() && (r.Keys["when"] == nil || r.when != nil) && slices.ContainsFunc(r.named, ofAnyCheck) {
		r.Errorf("absentFor", `requires a check that when names, such as event.check == "backup", or a condition: a rule for all checks ends with the result of any, and can't fire while one is unknown, which only a condition (Unknown) would show`)
	}
	if r.message != nil && slices.ContainsFunc(r.message.parts, func(p piece) bool { return p.x != nil }) {
		r.Errorf("message", "has ${…}, but a problem with absentFor has no event to take values from")
	}
}
