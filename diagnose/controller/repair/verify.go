package repair

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// verify determines whether the repair that was allowed last has helped.
func (l *look) verify(ctx context.Context) error {
	all := allowedRepairs(l.d)
	if len(all) == 0 || verified(l.d) != nil {
		return nil
	}
	last := all[len(all)-1]
	if last.begun.IsZero() && l.d.Status.Phase.Ended() {
		// It will no longer begin.
		if started := begun(all); len(started) > 0 {
			last = started[len(started)-1]
		}
	}
	if last.ended.IsZero() {
		return nil // its end arrives with an update of the Diagnosis
	}
	v, err := l.view(ctx)
	if err != nil {
		return err
	}
	p, err := l.problem(ctx)
	if err != nil {
		return err
	}
	noted := l.noted(&last)
	verification := l.verification(&last, p, noted, within(v, l.d.Spec.NodeName, last.operation))
	o, err := l.observe(ctx, p)
	if err != nil {
		return err
	}
	verification = verification.Observe(o)
	why, pending := "", false
	if verification.State == policy.Unknown {
		if why, pending, err = l.checkAgain(ctx, &last, verification.Deadline, o); err != nil {
			return err
		}
		verification = verification.Observe(o)
	}
	if verification.State == policy.NotHelped && o.Problem != v1alpha1.ProblemGone {
		if err := l.tryAgain(ctx, v, &last); err != nil {
			return err
		}
	}
	return l.word(ctx, &last, noted, verification, why, pending)
}

// verification returns the verification of a repair whose end was recorded at noted. If the node
// itself reports the problem, its times are compared with the node's clock; reports of alerts and
// repeated checks use the controller's clock.
func (l *look) verification(last *made, p *v1alpha1.Problem, noted time.Time, within time.Duration) policy.Verification {
	switch {
	case p == nil || l.d.Labels[trigger.LabelSource] == string(trigger.SourceAlert):
		return policy.Verify(last.allowed, noted, noted, within)
	case last.here:
		// The status that recorded the beginning replaced one in which the problem was not gone.
		return policy.Verify(time.Time{}, last.nodeEnded, noted, within)
	}
	return policy.Verify(last.begun, last.nodeEnded, noted, within)
}

// noted returns when the controller learned of the end of a repair, by its clock.
func (l *look) noted(last *made) time.Time {
	c := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case last.here:
		return last.ended
	case c != nil && verifies(c):
		return c.LastTransitionTime.Time
	}
	return l.now
}

// verifies reports whether the condition Verified still waits for evidence that an ended repair
// helped.
func verifies(c *metav1.Condition) bool {
	return c.Reason == v1alpha1.ReasonVerifying || c.Reason == v1alpha1.ReasonProblemUnknown
}

// verifying records that a repair has ended, and when that became known.
func (l *look) verifying(s *v1alpha1.DiagnosisStatus, message string) {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionVerified); c != nil && !verifies(c) {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionVerified) // otherwise its time would stay
	}
	l.condition(s, v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonVerifying, message)
}

// within returns the longest time that any policy of the node allows a repair to help.
func within(v *view, node, operation string) time.Duration {
	var longest time.Duration
	n := cmp.Or(v.cluster.Node(node), &policy.Node{Name: node})
	for _, p := range v.policies {
		if p.Selects(n) {
			longest = max(longest, p.VerifyWithin(operation))
		}
	}
	if longest == 0 { // the policies are gone
		longest = policy.New(&v1alpha1.RemediationPolicy{}).VerifyWithin(operation)
	}
	return longest
}

// observe returns the observed state of the node and the problem.
func (l *look) observe(ctx context.Context, p *v1alpha1.Problem) (*policy.Observation, error) {
	o := &policy.Observation{Now: l.now}
	if p != nil {
		o.Problem, o.Seen = p.State, seen(p)
	}
	if o.Problem == v1alpha1.ProblemGone {
		o.Gone = p.Since.Time
	}
	n := l.nodeOf(ctx)
	if n == nil {
		err := l.live.Get(ctx, client.ObjectKey{Name: l.d.Spec.NodeName}, &corev1.Node{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("node %s: %w", l.d.Spec.NodeName, err)
		}
		o.NodeGone = err != nil
		return o, nil
	}
	o.Ready = readySince(n)
	return o, nil
}

// word records the result of a verification. noted is when the repair's end was recorded. why is
// the text about repeated checks; pending: they still run.
func (l *look) word(ctx context.Context, last *made, noted time.Time, v policy.Verification, why string, pending bool) error {
	l.interest.node = l.d.Spec.NodeName
	status, reason, message := metav1.ConditionUnknown, v1alpha1.ReasonVerifying, fmt.Sprintf("%s ended at %s and has until %s to help", last.operation, stamp(noted), stamp(v.Deadline))
	event, kind := "", normal
	switch v.State {
	case policy.Helped:
		status, reason, event = metav1.ConditionTrue, v1alpha1.ReasonHelped, "RepairVerified"
	case policy.NotHelped:
		status, reason, event, kind = metav1.ConditionFalse, v1alpha1.ReasonNotHelped, "RepairDidNotHelp", warning
	case policy.Moot:
		reason, event = v1alpha1.ReasonMoot, "RepairMoot"
	case policy.Unknown:
		message = last.operation + ": " + v.Message
		if !pending {
			reason, event, kind = v1alpha1.ReasonProblemUnknown, "RepairUnverified", warning
		}
	default:
		l.at(v.Deadline.Add(time.Second)) // the problem's end may be reported a little late
	}
	if event != "" {
		message = last.operation + ": " + v.Message
	}
	if why != "" {
		message += "; " + why
	}
	had := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified)
	message = display.Bounded(message, v1alpha1.MaxMessageBytes)
	if err := l.write(ctx, func(s *v1alpha1.DiagnosisStatus) {
		if reason == v1alpha1.ReasonVerifying {
			l.verifying(s, message)
			return
		}
		l.condition(s, v1alpha1.ConditionVerified, status, reason, message)
	}); err != nil {
		return err
	}
	if !last.here && had != nil && had.Reason == v1alpha1.ReasonRepairing {
		l.reportEnd(ctx, last.operation, "", last.state, last.message)
	}
	if event != "" && (had == nil || had.Reason != reason) {
		l.counts.verifications.WithLabelValues(last.operation, string(v.State)).Inc()
		l.reporter.record(l.d, l.nodeOf(ctx), kind, event, last.operation, message)
	}
	return nil
}

// stamp formats a time for messages.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// nodeOf returns the Diagnosis' node from the cache, or nil if it has none.
func (l *look) nodeOf(ctx context.Context) *corev1.Node {
	n := &corev1.Node{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: l.d.Spec.NodeName}, n); err != nil {
		return nil
	}
	return n
}
