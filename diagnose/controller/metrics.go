package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// counts are the controller's counters.
type counts struct {
	deleted *prometheus.CounterVec // by reason
}

func newCounts() *counts {
	c := &counts{deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kernosis_controller_diagnoses_deleted_total", Help: "Diagnoses that were deleted, by why.",
	}, []string{"reason"})}
	for _, why := range []string{deletedTTL, deletedHistory, deletedCap, deletedParent} {
		c.deleted.WithLabelValues(why)
	}
	return c
}

// collector counts the Diagnoses in the cache when it is asked.
type collector struct {
	*counts
	cache client.Reader
	by    *prometheus.Desc
}

// collectWithin is for how long the cache may take: it waits until it has all.
const collectWithin = 2 * time.Second

func newCollector(c *counts, cache client.Reader) *collector {
	return &collector{counts: c, cache: cache, by: prometheus.NewDesc("kernosis_controller_diagnoses", "Diagnoses there are, by their phase.", []string{"phase"}, nil)}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	c.deleted.Describe(out)
	out <- c.by
}

// Collect implements [prometheus.Collector]. While the cache has not all Diagnoses, it
// tells of none.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.deleted.Collect(out)
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	var list v1alpha1.DiagnosisList
	if err := c.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	phases := map[v1alpha1.Phase]int{
		v1alpha1.PhasePending: 0, v1alpha1.PhaseRunning: 0, v1alpha1.PhaseSucceeded: 0,
		v1alpha1.PhaseFailed: 0, v1alpha1.PhaseCancelled: 0, v1alpha1.PhaseUnknown: 0,
	}
	for i := range list.Items {
		phase := list.Items[i].Status.Phase
		if phase == "" {
			phase = v1alpha1.PhasePending
		}
		phases[phase]++
	}
	for phase, n := range phases {
		out <- prometheus.MustNewConstMetric(c.by, prometheus.GaugeValue, float64(n), string(phase))
	}
}
