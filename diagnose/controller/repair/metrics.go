package repair

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the controller's counters.
type counts struct {
	decisions     *prometheus.CounterVec // by policy, verb and reason
	repairs       *prometheus.CounterVec // by operation and outcome
	verifications *prometheus.CounterVec // by operation and result
}

func newCounts() *counts {
	return &counts{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_remediation_decisions_total", Help: "Decisions on repairs, each once while it stays the same; policy is empty where none has the word.",
		}, []string{"policy", "verb", "reason"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_remediation_repairs_total", Help: "Repairs that have ended, by outcome.",
		}, []string{"operation", "outcome"}),
		verifications: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_remediation_verifications_total", Help: "Repairs by whether they helped: Helped, NotHelped, or Moot where nothing was proven.",
		}, []string{"operation", "result"}),
	}
}

// collector tells how many slots are in use when it is asked.
type collector struct {
	*counts
	slots func() map[string]int
}

func slotsDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_remediation_slots", "Nodes that use up a policy's budget by a repair.", []string{"policy"}, nil)
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, v := range []prometheus.Collector{c.decisions, c.repairs, c.verifications} {
		v.Describe(out)
	}
	out <- slotsDesc()
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, v := range []prometheus.Collector{c.decisions, c.repairs, c.verifications} {
		v.Collect(out)
	}
	for name, n := range c.slots() {
		out <- prometheus.MustNewConstMetric(slotsDesc(), prometheus.GaugeValue, float64(n), name)
	}
}

// slots returns how many slots of each policy are in use, as the cache has it. A
// controller that is not the leader has none to tell of.
func (r *reconciler) slots() map[string]int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !r.running.Load() {
		return nil
	}
	all, err := r.policies(ctx)
	if err != nil {
		return nil
	}
	out := map[string]int{}
	for _, p := range all {
		out[p.Name] = 0
		for _, slot := range p.Status.Repairs {
			if slot.EndTime == nil {
				out[p.Name]++
			}
		}
	}
	return out
}
