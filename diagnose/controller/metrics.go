package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

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
	cache cache.Cache
	by    *prometheus.Desc
}

// collectWithin is for how long the cache may take: it waits until it has all.
const collectWithin = 2 * time.Second

func newCollector(c *counts, kinds cache.Cache) *collector {
	return &collector{counts: c, cache: kinds, by: prometheus.NewDesc("kernosis_controller_diagnoses", "Diagnoses there are, by their phase.", []string{"phase"}, nil)}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	c.deleted.Describe(out)
	out <- c.by
}

// Collect implements [prometheus.Collector]. While the cache has not all Diagnoses, it
// reports none.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.deleted.Collect(out)
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	informer, err := c.cache.GetInformer(ctx, &v1alpha1.Diagnosis{})
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if err != nil || !ok {
		return
	}
	phases := map[v1alpha1.Phase]int{
		v1alpha1.PhasePending: 0, v1alpha1.PhaseRunning: 0, v1alpha1.PhaseSucceeded: 0,
		v1alpha1.PhaseFailed: 0, v1alpha1.PhaseCancelled: 0, v1alpha1.PhaseUnknown: 0,
	}
	// The store itself: a List copies tens of thousands of objects for a few numbers.
	for _, object := range shared.GetStore().List() {
		if d, ok := object.(*v1alpha1.Diagnosis); ok {
			phases[cmp.Or(d.Status.Phase, v1alpha1.PhasePending)]++
		}
	}
	for phase, n := range phases {
		out <- prometheus.MustNewConstMetric(c.by, prometheus.GaugeValue, float64(n), string(phase))
	}
}
