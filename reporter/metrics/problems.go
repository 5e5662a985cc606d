package metrics

import (
	"errors"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/detector/problem"
)

// ProblemKind is what node-problem-detector's metrics know of a rule.
type ProblemKind struct {
	Condition string // empty: temporary
	Reason    string
}

// Problems are node-problem-detector's metrics of problems, problem_counter and
// problem_gauge, by their names there. Its methods are safe for concurrent use.
type Problems struct {
	counter *prometheus.CounterVec
	gauge   *prometheus.GaugeVec

	mu      sync.Mutex
	reasons map[string][]string // by condition type
}

// NewProblems registers them, with a zero for each kind.
func NewProblems(r prometheus.Registerer, kinds []ProblemKind) (*Problems, error) {
	p := &Problems{
		reasons: map[string][]string{},
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "problem_counter", Help: "Number of times a specific type of problem has occurred.",
		}, []string{"reason"}),
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "problem_gauge", Help: "Whether a specific type of problem is affecting the node or not.",
		}, []string{"type", "reason"}),
	}
	p.Known(kinds)
	return p, errors.Join(r.Register(p.counter), r.Register(p.gauge))
}

// Known reports kinds that there may be from now on. Their number is bounded by
// the rules'.
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

// Transition counts a problem that begins to fire, unless another one hides it, and follows
// the conditions.
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

// began reports whether a problem began to fire that no other one hides.
func began(t problem.Transition) bool {
	return !t.Again && t.Problem != nil && t.Problem.State == problem.Firing && t.Problem.SuppressedBy == ""
}

// Conditions sets all conditions that there are, as [Metrics.Conditions] does.
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

// set has 1 for the reason that a condition is True for, if it is.
func (p *Problems) set(c *problem.Condition) {
	if c.Status == problem.True && !slices.Contains(p.reasons[c.Type], c.Reason) {
		p.reasons[c.Type] = append(p.reasons[c.Type], c.Reason) // a problem daemon's; ingest bounds them
	}
	for _, r := range p.reasons[c.Type] {
		p.gauge.WithLabelValues(c.Type, r).Set(boolean(c.Status == problem.True && c.Reason == r))
	}
}
