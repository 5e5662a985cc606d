package repair

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// counts are the counters, and the registry of all metrics of this package.
type counts struct {
	*prometheus.Registry                        // of these counters and the policies' gauges
	decisions            *prometheus.CounterVec // by policy, verb and reason
	repairs              *prometheus.CounterVec // by operation and outcome
	verifications        *prometheus.CounterVec // by operation and result
}

func newCounts() *counts {
	own := prometheus.NewRegistry()
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(own).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &counts{
		Registry:      own,
		decisions:     counters("kernosis_remediation_decisions_total", "Decisions on repairs, each counted once while it stays the same; policy is empty if no policy decided.", "policy", "verb", "reason"),
		repairs:       counters("kernosis_remediation_repairs_total", "Repairs that have ended, by outcome.", "operation", "outcome"),
		verifications: counters("kernosis_remediation_verifications_total", "Repairs by whether they helped: Helped, NotHelped, Unknown while nothing shows it, or Moot if it can't be shown.", "operation", "result"),
	}
}

// gauges are the values of a policy at a scrape.
type gauges struct {
	policy string
	slots  int // taken
	kept   int // nodes under repair or in their cooldown
	use    v1alpha1.BudgetUse
	paused string // the reason; empty: not paused
}

// gauge is a metric of a policy.
type gauge struct {
	name, help string
	of         func(*gauges) int
}

func policyGauges() []gauge {
	return []gauge{
		{"kernosis_remediation_slots", "Nodes that count against a policy's budget because of a repair.", func(g *gauges) int { return g.slots }},
		{"kernosis_remediation_budget_used", "Nodes that count against a policy's budget: under repair, or out of service for another reason.", func(g *gauges) int { return int(g.use.Used) }},
		{"kernosis_remediation_budget_limit", "How many nodes of a policy may be under repair or out of service at the same time.", func(g *gauges) int { return int(g.use.Limit) }},
		{"kernosis_remediation_nodes", "Nodes that a policy repairs.", func(g *gauges) int { return int(g.use.Nodes) }},
		{"kernosis_remediation_nodes_not_ready", "Nodes that a policy repairs and that are not ready.", func(g *gauges) int { return int(g.use.NotReady) }},
		{"kernosis_remediation_entries", "Nodes under repair or in their cooldown; a policy can track at most 4096.", func(g *gauges) int { return g.kept }},
	}
}

func (g *gauge) desc() *prometheus.Desc {
	return prometheus.NewDesc(g.name, g.help, []string{"policy"}, nil)
}

func pausedDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_remediation_paused", "1 while a policy blocks all repairs, by reason.", []string{"policy", "reason"}, nil)
}

// Describe implements [prometheus.Collector].
func (*reconciler) Describe(out chan<- *prometheus.Desc) {
	for _, g := range policyGauges() {
		out <- g.desc()
	}
	out <- pausedDesc()
}

// Collect implements [prometheus.Collector].
func (r *reconciler) Collect(out chan<- prometheus.Metric) {
	for _, p := range r.policyGauges() {
		for _, g := range policyGauges() {
			out <- prometheus.MustNewConstMetric(g.desc(), prometheus.GaugeValue, float64(g.of(&p)), p.policy)
		}
		if p.paused != "" {
			out <- prometheus.MustNewConstMetric(pausedDesc(), prometheus.GaugeValue, 1, p.policy, p.paused)
		}
	}
}

// policyGauges returns the values of each policy, from the cache. A controller that is not the
// leader reports none.
func (r *reconciler) policyGauges() []gauges {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !r.running.Load() {
		return nil
	}
	v, err := r.view(ctx)
	if err != nil {
		return nil
	}
	var out []gauges
	for i, p := range v.objects {
		g := gauges{policy: p.Name, kept: len(p.Status.Repairs) + len(p.Status.Cooldowns), use: v.policies[i].Use(v.cluster)}
		for _, slot := range p.Status.Repairs {
			if slot.EndTime == nil {
				g.slots++
			}
		}
		g.paused = v.policies[i].Paused(v.cluster, r.config.Now()).Reason
		if v.policies[i].Err() != nil {
			g.paused = v1alpha1.ReasonInvalid
		}
		out = append(out, g)
	}
	return out
}
