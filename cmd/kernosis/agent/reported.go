package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// problemKey identifies a problem.
type problemKey struct{ rule, group string }

func keyOf(p *problem.Problem) problemKey { return problemKey{p.Rule, p.Group} }

// reportedState is what earlier runs reported: firing problems, and conditions.
type reportedState struct {
	firing     map[problemKey]problem.Problem
	conditions map[string]problem.Status
}

// add adds what was reported according to a saved state.
func (r *reportedState) add(firing []problem.Problem, conditions []problem.Condition) {
	for i := range firing {
		r.firing[keyOf(&firing[i])] = firing[i]
	}
	for _, c := range conditions {
		r.conditions[c.Type] = c.Status
	}
}

// note adds what was reported according to the journal.
func (r *reportedState) note(transitions []problem.Transition) {
	for _, t := range transitions {
		switch p, c := t.Problem, t.Condition; {
		case c != nil:
			r.conditions[c.Type] = c.Status
		case p == nil:
		case p.State == problem.Firing:
			r.firing[keyOf(p)] = *p
		default:
			delete(r.firing, keyOf(p))
		}
	}
}

// changes returns the differences between the engine and what was reported, at now: problems that
// ended; permanent problems that fire, or whose suppression or mute changed, because rules changed;
// and conditions that these make True. Other conditions are Unknown until their sources are up, and
// the engine reports them then.
func (r *reportedState) changes(problems []problem.Problem, conditions []problem.Condition, now time.Time) []problem.Transition {
	var ended, others []problem.Transition
	lasts := map[problemKey]bool{}
	for i := range problems {
		p := &problems[i]
		if p.State != problem.Firing {
			continue
		}
		lasts[keyOf(p)] = true
		was, ok := r.firing[keyOf(p)]
		if p.Condition != "" && (!ok || was.SuppressedBy != p.SuppressedBy || was.MutedUntil.IsZero() != p.MutedUntil.IsZero()) {
			others = append(others, problem.Transition{Problem: p, Again: ok})
		}
	}
	for key, p := range r.firing {
		if !lasts[key] {
			p.State, p.Since = problem.Resolved, now
			ended = append(ended, problem.Transition{Problem: &p})
		}
	}
	slices.SortFunc(ended, func(a, b problem.Transition) int {
		return cmp.Or(cmp.Compare(a.Problem.Rule, b.Problem.Rule), cmp.Compare(a.Problem.Group, b.Problem.Group))
	})
	for i := range conditions {
		if c := &conditions[i]; c.Status == problem.True && r.conditions[c.Type] != problem.True {
			others = append(others, problem.Transition{Condition: c})
		}
	}
	return append(ended, others...)
}

// started records in the engine and the journal that nothing was watched until now, and reports
// what differs from the reports of earlier runs.
func (a *pipeline) started(before *reportedState) {
	e := journal.NewEntry(a.now())
	e.Boot = hostfs.BootID()
	a.saw, a.ended = map[string]bool{}, a.engine.Now().Boot
	for _, s := range a.engine.Sources() {
		a.saw[s.Stem] = s.Up
	}
	a.engine.Restarted(e.Moment())
	e.Transitions = before.changes(a.engine.Problems(), a.engine.Conditions(), e.Now)
	a.report(e)
}

// earlier returns how long ago the last run of this boot ended, and whether the source was up then.
func (a *pipeline) earlier(stem string) (ago time.Duration, ok bool) {
	return hostfs.BootTime() - a.ended, a.saw[stem]
}

// unrepeated returns the transitions of problems that the journal recorded but the engine did not
// repeat in the replay, because rules changed: ends of problems, and permanent problems that fire,
// with the engine's evidence.
func unrepeated(recorded, repeated []problem.Transition, engine func() []problem.Problem) (out []problem.Transition) {
	for _, t := range recorded {
		p := t.Problem
		if p == nil || slices.ContainsFunc(repeated, func(o problem.Transition) bool { return o.Problem != nil && alike(o.Problem, p) }) {
			continue
		}
		if p.State == problem.Firing {
			if p.Condition == "" {
				continue
			}
			all := engine()
			i := slices.IndexFunc(all, func(o problem.Problem) bool { return alike(&o, p) })
			if i < 0 {
				continue
			}
			p.Evidence = all[i].Evidence
		}
		out = append(out, t)
	}
	return out
}

// alike reports whether a and b are the same problem in the same state.
func alike(a, b *problem.Problem) bool { return keyOf(a) == keyOf(b) && a.State == b.State }
