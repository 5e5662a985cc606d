package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Problems exports node-problem-detector's metrics problem_counter and problem_gauge under their
// original names. Its methods are safe for concurrent use.
type Problems struct {
	counter *prometheus.CounterVec
	gauge   *prometheus.GaugeVec

	mu      sync.Mutex
	reasons map[string][]string // by condition type
}

// NewProblems registers the metrics, with zeros for the problems of rules.
func NewProblems(r prometheus.Registerer, rules []*detector.Rule) *Problems {
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
	p.Known(rules)
	return p
}

// Known adds zeros for the problems of further rules.
func (p *Problems) Known(rules []*detector.Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rules {
		p.counter.WithLabelValues(r.Reason)
		if r.Condition == "" || slices.Contains(p.reasons[r.Condition], r.Reason) {
			continue
		}
		p.reasons[r.Condition] = append(p.reasons[r.Condition], r.Reason)
		p.gauge.WithLabelValues(r.Condition, r.Reason)
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
