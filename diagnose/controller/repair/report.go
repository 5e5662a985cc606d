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

// Describe implements [prometheus.Collector].
func (*reconciler) Describe(out chan<- *prometheus.Desc) {
	for _, m := range policyMetrics(&v1alpha1.RemediationPolicy{}, v1alpha1.BudgetUse{}, v1alpha1.ReasonInvalid) {
		out <- m.Desc()
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
		paused := v.policies[i].Paused(v.cluster, r.config.Now()).Reason
		if v.policies[i].Err() != nil {
			paused = v1alpha1.ReasonInvalid
		}
		for _, m := range policyMetrics(p, v.policies[i].Use(v.cluster), paused) {
			out <- m
		}
	}
}

// policyMetrics returns the metrics of a policy; paused is the reason why it blocks all repairs, or "".
func policyMetrics(p *v1alpha1.RemediationPolicy, use v1alpha1.BudgetUse, paused string) (all []prometheus.Metric) {
	gauge := func(n int, name, help string, reason ...string) {
		desc := prometheus.NewDesc(name, help, []string{"policy", "reason"}[:1+len(reason)], nil)
		all = append(all, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), append([]string{p.Name}, reason...)...))
	}
	slots := 0
	for _, slot := range p.Status.Repairs {
		if slot.EndTime == nil {
			slots++
		}
	}
	gauge(slots, "kernosis_remediation_slots", "Nodes that count against a policy's budget because of a repair.")
	gauge(int(use.Used), "kernosis_remediation_budget_used", "Nodes that count against a policy's budget: under repair, or out of service for another reason.")
	gauge(int(use.Limit), "kernosis_remediation_budget_limit", "How many nodes of a policy may be under repair or out of service at the same time.")
	gauge(int(use.Nodes), "kernosis_remediation_nodes", "Nodes that a policy repairs.")
	gauge(int(use.NotReady), "kernosis_remediation_nodes_not_ready", "Nodes that a policy repairs and that are not ready.")
	gauge(len(p.Status.Repairs)+len(p.Status.Cooldowns), "kernosis_remediation_entries", "Nodes under repair or in their cooldown; a policy can track at most 4096.")
	if paused != "" {
		gauge(1, "kernosis_remediation_paused", "1 while a policy blocks all repairs, by reason.", paused)
	}
	return all
}
