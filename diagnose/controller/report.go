package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Reasons of Events on Diagnoses.
const (
	EventStarted   = "DiagnosisStarted"
	EventSucceeded = "DiagnosisSucceeded"
	EventFailed    = "DiagnosisFailed" // no path succeeded
	EventCancelled = "DiagnosisCancelled"
	EventUnknown   = "DiagnosisUnknown" // a person must check
	EventRefused   = "DiagnosisRefused" // it can't run
)

// eventAction is the action field of the Events.
const eventAction = "Diagnose"

// maxNote is the API's limit for an Event's note, in bytes.
const maxNote = 1024

// reportChange creates Events when a Diagnosis starts and ends. Changes from before the controller
// began to watch are not reported.
func (r *diagnoses) reportChange(was, is *v1alpha1.Diagnosis) {
	if is.UID != was.UID {
		return
	}
	if is.Status.StartTime != nil && was.Status.StartTime == nil {
		where := "on node " + is.Spec.NodeName
		if is.Spec.TargetSelector != nil {
			where = "on its targets"
		}
		r.record(is, corev1.EventTypeNormal, EventStarted, fmt.Sprintf("runs the OperationSet %s %s", is.Spec.OperationSet, where))
	}
	if is.Status.Completed() && !was.Status.Completed() {
		kind, reason, note := ending(is)
		r.record(is, kind, reason, note)
	}
}

func (r *diagnoses) record(d *v1alpha1.Diagnosis, kind, reason, note string) {
	// The object is the cache's: the recorder only reads its reference.
	r.recorder.Eventf(d, nil, kind, reason, eventAction, "%s", display.Safe(note, maxNote-len("…")))
}

// ending returns the Event of a Diagnosis that has ended.
func ending(d *v1alpha1.Diagnosis) (kind, reason, note string) {
	c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete)
	note = join(c.Reason, c.Message)
	if v := d.Status.Verdict; v != nil {
		note = v.Reason
		if v.Message != "" {
			note += ": " + v.Message
		}
	}
	switch d.Status.Phase {
	case v1alpha1.PhaseSucceeded:
		return corev1.EventTypeNormal, EventSucceeded, note
	case v1alpha1.PhaseCancelled:
		return corev1.EventTypeNormal, EventCancelled, note
	case v1alpha1.PhaseUnknown:
		return corev1.EventTypeWarning, EventUnknown, note
	}
	switch c.Reason {
	case v1alpha1.ReasonNoPathSucceeded, v1alpha1.ReasonRemediationIncomplete, v1alpha1.ReasonNoTargetSucceeded:
		return corev1.EventTypeWarning, EventFailed, note
	}
	return corev1.EventTypeWarning, EventRefused, note
}

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
