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

// newDeleted counts the Diagnoses that were deleted, by reason.
func newDeleted() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kernosis_controller_diagnoses_deleted_total", Help: "Diagnoses that were deleted, by reason.",
	}, []string{"reason"})
	for _, why := range []string{deletedTTL, deletedHistory, deletedCap, deletedParent} {
		c.WithLabelValues(why)
	}
	return c
}

// phases counts the Diagnoses in a cache at each scrape.
type phases struct{ cache cache.Cache }

// collectWithin bounds how long a scrape waits for the cache to be synced.
const collectWithin = 2 * time.Second

func (*phases) desc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_controller_diagnoses", "Existing Diagnoses, by phase.", []string{"phase"}, nil)
}

// Describe implements [prometheus.Collector].
func (p *phases) Describe(out chan<- *prometheus.Desc) { out <- p.desc() }

// Collect implements [prometheus.Collector]. It reports nothing until the cache is synced.
func (p *phases) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	informer, err := p.cache.GetInformer(ctx, &v1alpha1.Diagnosis{})
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if err != nil || !ok {
		return
	}
	count := map[v1alpha1.Phase]int{
		v1alpha1.PhasePending: 0, v1alpha1.PhaseRunning: 0, v1alpha1.PhaseSucceeded: 0,
		v1alpha1.PhaseFailed: 0, v1alpha1.PhaseCancelled: 0, v1alpha1.PhaseUnknown: 0,
	}
	// Read the store directly: a List would copy tens of thousands of objects for a few numbers.
	for _, object := range shared.GetStore().List() {
		if d, ok := object.(*v1alpha1.Diagnosis); ok {
			count[cmp.Or(d.Status.Phase, v1alpha1.PhasePending)]++
		}
	}
	for phase, n := range count {
		out <- prometheus.MustNewConstMetric(p.desc(), prometheus.GaugeValue, float64(n), string(phase))
	}
}
