package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/detector/problem"
)

// ProblemKind identifies a rule in node-problem-detector's metrics.
type ProblemKind struct {
	Condition string // empty for temporary problems
	Reason    string
}

// Problems exports node-problem-detector's metrics problem_counter and problem_gauge under their
// original names. Its methods are safe for concurrent use.
type Problems struct {
	counter *prometheus.CounterVec
	gauge   *prometheus.GaugeVec

	mu      sync.Mutex
	reasons map[string][]string // by condition type
}

// NewProblems registers the metrics, with a zero for each kind.
func NewProblems(r prometheus.Registerer, kinds []ProblemKind) *Problems {
	with := promauto.With(r)
	p := &Problems{
		reasons: map[string][]string{},
		counter: with.NewCounterVec(prometheus.CounterOpts{
			Name: "problem_counter", Help: "Number of times a specific type of problem has occurred.",
		}, []string{"reason"}),
		gauge: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "problem_gauge", Help: "Whether a specific type of problem is affecting the node or not.",
		}, []string{"type", "reason"}),
	}
	p.Known(kinds)
	return p
}

// Known adds zeros for further kinds. The number of rules bounds theirs.
func (p *Problems) Known(kinds []ProblemKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range kinds {
		p.counter.WithLabelValues(k.Reason)
		if k.Condition == "" || slices.Contains(p.reasons[k.Condition], k.Reason) {
			continue
		}
		p.reasons[k.Condition] = append(p.reasons[k.Condition], k.Reason)
		p.gauge.WithLabelValues(k.Condition, k.Reason)
	}
}

// Transition counts a problem that starts firing, unless it is suppressed, and updates the gauge
// when a condition changes.
func (p *Problems) Transition(t problem.Transition) {
	switch {
	case began(t):
		p.counter.WithLabelValues(t.Problem.Reason).Add(float64(t.Occurrences()))
	case t.Condition != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.set(t.Condition)
	}
}

// began reports whether a problem started firing and is not suppressed by another one.
func began(t problem.Transition) bool {
	return !t.Again && t.Problem != nil && t.Problem.State == problem.Firing && t.Problem.SuppressedBy == ""
}

// Conditions sets all existing conditions, like [Metrics.Conditions].
func (p *Problems) Conditions(all []problem.Condition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	types := make(map[string]bool, len(all))
	for i := range all {
		types[all[i].Type] = true
		p.set(&all[i])
	}
	for t := range p.reasons {
		if !types[t] {
			p.gauge.DeletePartialMatch(prometheus.Labels{"type": t})
			delete(p.reasons, t)
		}
	}
}

// set sets the gauge to 1 for the reason of a condition that is True, and to 0 for all others.
func (p *Problems) set(c *problem.Condition) {
	if c.Status == problem.True && !slices.Contains(p.reasons[c.Type], c.Reason) {
		p.reasons[c.Type] = append(p.reasons[c.Type], c.Reason) // reported by a problem daemon; ingest bounds their number
	}
	for _, r := range p.reasons[c.Type] {
		p.gauge.WithLabelValues(c.Type, r).Set(boolean(c.Status == problem.True && c.Reason == r))
	}
}
