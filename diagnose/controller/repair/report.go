package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// Types of Events.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// maxAction is the API's limit for the action field of an Event.
const maxAction = 128

// reporter reports repairs by Events, each on the Diagnosis and on its node.
type reporter struct{ recorder events.EventRecorder }

// decided reports a new decision.
func (r *reporter) decided(d *v1alpha1.Diagnosis, n *corev1.Node, u *due, decision policy.Decision) {
	kind, reason := normal, "RepairWithheld"
	switch decision.Verb {
	case v1alpha1.RemediationRun:
		reason = "RepairAllowed"
	case v1alpha1.RemediationWouldRun:
		if reason = u.kind.would; reason == "" {
			reason = "WouldRepair"
		}
	case v1alpha1.RemediationWait:
		reason = "RepairWaits"
	default:
		kind = warning
	}
	r.record(d, n, kind, reason, u.operation, fmt.Sprintf("%s of %s: %s: %s", u.operation, u.target, decision.Reason, decision.Message))
}

// record creates the Events. A node that is gone gets none.
func (r *reporter) record(d *v1alpha1.Diagnosis, n *corev1.Node, kind, reason, action, message string) {
	action, message = display.Bounded(action, maxAction), display.Bounded(message, v1alpha1.MaxMessageBytes)
	var related runtime.Object
	if n != nil {
		related = n
		r.recorder.Eventf(n, d, kind, reason, action, "%s", display.Bounded(message+" (diagnosis "+d.Name+")", v1alpha1.MaxMessageBytes))
	}
	r.recorder.Eventf(d, related, kind, reason, action, "%s", message)
}

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

// policyGauges returns the gauges of a policy, in the order of the values in [reconciler.Collect].
func policyGauges() []*prometheus.Desc {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"policy"}, nil)
	}
	return []*prometheus.Desc{
		gauge("kernosis_remediation_slots", "Nodes that count against a policy's budget because of a repair."),
		gauge("kernosis_remediation_budget_used", "Nodes that count against a policy's budget: under repair, or out of service for another reason."),
		gauge("kernosis_remediation_budget_limit", "How many nodes of a policy may be under repair or out of service at the same time."),
		gauge("kernosis_remediation_nodes", "Nodes that a policy repairs."),
		gauge("kernosis_remediation_nodes_not_ready", "Nodes that a policy repairs and that are not ready."),
		gauge("kernosis_remediation_entries", "Nodes under repair or in their cooldown; a policy can track at most 4096."),
	}
}

func pausedDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_remediation_paused", "1 while a policy blocks all repairs, by reason.", []string{"policy", "reason"}, nil)
}

// Describe implements [prometheus.Collector].
func (*reconciler) Describe(out chan<- *prometheus.Desc) {
	for _, d := range append(policyGauges(), pausedDesc()) {
		out <- d
	}
}

// Collect implements [prometheus.Collector], with values from the cache. A controller that is not
// the leader reports none.
func (r *reconciler) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !r.running.Load() {
		return
	}
	v, err := r.view(ctx)
	if err != nil {
		return
	}
	for i, p := range v.objects {
		use, slots := v.policies[i].Use(v.cluster), 0
		for _, slot := range p.Status.Repairs {
			if slot.EndTime == nil {
				slots++
			}
		}
		entries := len(p.Status.Repairs) + len(p.Status.Cooldowns)
		values := []int{slots, int(use.Used), int(use.Limit), int(use.Nodes), int(use.NotReady), entries}
		for k, d := range policyGauges() {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(values[k]), p.Name)
		}
		paused := v.policies[i].Paused(v.cluster, r.config.Now()).Reason
		if v.policies[i].Err() != nil {
			paused = v1alpha1.ReasonInvalid
		}
		if paused != "" {
			out <- prometheus.MustNewConstMetric(pausedDesc(), prometheus.GaugeValue, 1, p.Name, paused)
		}
	}
}
