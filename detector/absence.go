package detector

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// absence is what a rule with absentFor knows of the events that it waits for. Its times are
// since boot, zero where that was never.
type absence struct {
	Heard   time.Duration `json:"heard,omitempty"`   // of the latest matching event
	Begun   time.Duration `json:"begun,omitempty"`   // when the period began that has to pass without one: the first source came up, or lines were lost
	Resumed time.Duration `json:"resumed,omitempty"` // when the rule's source last came up; zero while none sees
}

// due returns when the rule fires unless an event comes before, zero while no source sees. A source
// that was away first catches up with what came meanwhile.
func (a *absence) due(r *Rule) time.Duration {
	if a.Resumed == 0 {
		return 0
	}
	return max(a.Heard+r.AbsentFor, a.Begun+r.AbsentFor, a.Resumed+min(r.AbsentFor, confirmWithin))
}

// awaits reports whether the rule is about events that don't come.
func (r *Rule) awaits() bool { return r.AbsentFor > 0 }

// heard handles an event that a rule waits for.
func (e *Engine) heard(r *ruleState, at, now event.Moment) {
	r.absence.Heard = max(r.absence.Heard, at.Boot)
	if en := r.series.entries[""]; en != nil && en.p.State == problem.Firing && at.Boot > en.Since-r.AbsentFor {
		e.resolve(en, now)
	}
	e.mark(r.series) // it may have been the first one
	e.absentDue = e.nextAbsence()
}

// absencesOf takes down that a stem's source came or went, or that something of it was lost.
func (e *Engine) absencesOf(stem string, st *stemState, lost bool, now time.Duration) {
	for _, r := range e.rules {
		if !r.awaits() || !r.looksAt(stem, st) {
			continue
		}
		e.resume(r, now)
		if lost && e.needs(r.Rule, stem, st) {
			r.absence.Begun = now // it may have been among them
		}
	}
	e.absentDue = e.nextAbsence()
}

// resume has the rule wait if a source of it sees.
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

// nextAbsence returns when the first absence is due, zero where none is.
func (e *Engine) nextAbsence() (next time.Duration) {
	for _, r := range e.rules {
		if r.awaits() && r.series.firing == 0 {
			next = earlier(next, r.absence.due(r.Rule))
		}
	}
	return next
}

// absent has the rules fire whose events have not come.
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

// isAbsent begins the problem of a rule whose event has not come.
func (e *Engine) isAbsent(r *ruleState, at event.Moment) {
	en := e.place(r, nil, at)
	if en.p.State == problem.Resolved {
		r.series.resolved--
	}
	en.begin(r, at)
	en.reporter = r
	en.p.Count = 1
	en.p.Message, e.text, _ = r.message.render(e.act, e.text) // of constant text
	e.fire(en, at)
}

// unreportedAbsences are the rules of a condition that have neither heard of an event nor waited
// for long enough.
func (e *Engine) unreportedAbsences(c *conditionState) (names []string) {
	for _, r := range e.rules {
		if r.awaits() && r.series.condition == c && r.absence.Heard == 0 && r.series.firing == 0 {
			names = append(names, "the first event of rule "+r.Name)
		}
	}
	return names
}

// checkAbsence tests a rule with absentFor: nothing that it says may need an event.
func (r *loadedRule) checkAbsence() {
	if r.Keys["absentFor"] == nil {
		return
	}
	for _, key := range []string{"groupBy", "threshold", "for", "clearAfter", "clearWhen", "clearPattern", "latched", "severityWhen", "fault", "fallbackFor", "maxGroups"} {
		if r.Keys[key] != nil {
			r.Errorf(key, "can't be combined with absentFor: its problem belongs to the node, begins when no event has come for that long, and ends with the next event")
		}
	}
	if r.message != nil && slices.ContainsFunc(r.message.parts, func(p piece) bool { return p.x != nil }) {
		r.Errorf("message", "has ${…}, but with absentFor there is no event that it could be about")
	}
}
