package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// reportedProblems are those that the runs before this have reported as firing, and not as
// resolved, by rule and group.
type reportedProblems map[[2]string]problem.Problem

func (r reportedProblems) add(firing []problem.Problem) {
	for _, p := range firing {
		r[[2]string{p.Rule, p.Group}] = p
	}
}

// note takes what the journal says was reported.
func (r reportedProblems) note(transitions []problem.Transition) {
	for _, t := range transitions {
		switch p := t.Problem; {
		case p == nil:
		case p.State == problem.Firing:
			r[[2]string{p.Rule, p.Group}] = *p
		default:
			delete(r, [2]string{p.Rule, p.Group})
		}
	}
}

// ended returns the ends, at now, of those that are not among the engine's.
func (r reportedProblems) ended(engine []problem.Problem, now time.Time) (out []problem.Transition) {
	lasts := map[[2]string]bool{}
	for i := range engine {
		p := &engine[i]
		lasts[[2]string{p.Rule, p.Group}] = p.State == problem.Firing
	}
	for key, p := range r {
		if !lasts[key] {
			p.State, p.Since = problem.Resolved, now
			out = append(out, problem.Transition{Problem: &p})
		}
	}
	slices.SortFunc(out, func(a, b problem.Transition) int {
		return cmp.Or(cmp.Compare(a.Problem.Rule, b.Problem.Rule), cmp.Compare(a.Problem.Group, b.Problem.Group))
	})
	return out
}
