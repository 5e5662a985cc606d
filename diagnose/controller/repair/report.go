package repair

import (
	"fmt"

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
		if reason = u.kind.Would; reason == "" {
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
