package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// maxInfos bounds the series of kernosis_problem_info of one agent.
const maxInfos = 100

// FiringProblem is a problem that fires now.
type FiringProblem struct {
	Rule, Reason string
	Severity     problem.Severity
	Subject      string // the pod, device or task that it affects, fit to be shown
	Since        time.Time
}

// Firing sets what fires now; rules not named have no firing problem.
func (m *Metrics) Firing(all []FiringProblem) {
	byRule := map[string]int{}
	for i := range all {
		byRule[all[i].Rule]++
	}
	m.firing.Reset()
	for rule, n := range byRule {
		m.firing.WithLabelValues(rule).Set(float64(n))
	}
	rank := func(s problem.Severity) int {
		return slices.Index([]problem.Severity{problem.Critical, problem.Warning, problem.Info}, s)
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b FiringProblem) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), a.Since.Compare(b.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject))
	})
	m.info.Reset()
	for _, p := range all[:min(len(all), maxInfos)] {
		m.info.WithLabelValues(p.Rule, p.Reason, string(p.Severity), p.Subject).Set(1)
	}
}
