package repair

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// verify says whether the repair that was allowed last has helped.
func (l *look) verify(ctx context.Context) error {
	all := allowedRepairs(l.d)
	if len(all) == 0 || verified(l.d) != nil {
		return nil
	}
	last := all[len(all)-1]
	if last.begun.IsZero() && l.d.Status.Phase.Ended() {
		// It will not begin any more.
		if started := begun(all); len(started) > 0 {
			last = started[len(started)-1]
		}
	}
	if last.ended.IsZero() {
		return nil // its end comes with a write of the Diagnosis
	}
	v, err := l.view(ctx)
	if err != nil {
		return err
	}
	noted := l.noted(&last)
	if last.here {
		// That it begins was written over a status of which the problem was not gone.
		last.begun = time.Time{}
	}
	verification := policy.Verify(last.begun, last.nodeEnded, noted, within(v, l.d.Spec.NodeName))
	o, err := l.observe(ctx, v)
	if err != nil {
		return err
	}
	return l.word(ctx, &last, noted, verification.Observe(o))
}

// noted returns since when the controller has the end of a repair, by its clock.
func (l *look) noted(last *made) time.Time {
	c := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case last.here:
		return last.ended
	case c != nil && c.Reason == v1alpha1.ReasonVerifying:
		return c.LastTransitionTime.Time
	}
	return l.now
}

// verifying notes that a repair has ended, and since when that is known.
func (l *look) verifying(s *v1alpha1.DiagnosisStatus, message string) {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionVerified); c != nil && c.Reason != v1alpha1.ReasonVerifying {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionVerified) // else its time stays
	}
	l.condition(s, v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonVerifying, message)
}

// within returns the longest time that a policy of the node gives a repair to help.
func within(v *view, node string) time.Duration {
	var longest time.Duration
	n := v.node(node)
	if n == nil {
		n = &policy.Node{Name: node}
	}
	for _, p := range v.policies {
		if p.Selects(n) {
			longest = max(longest, p.VerifyWithin())
		}
	}
	if longest == 0 { // they are gone
		longest = policy.New(&v1alpha1.RemediationPolicy{}).VerifyWithin()
	}
	return longest
}

// observe returns what is seen of the node and the problem.
func (l *look) observe(ctx context.Context, v *view) (*policy.Observation, error) {
	o := &policy.Observation{Now: l.now, Problem: problemOf(l.d)}
	if p := l.d.Status.Problem; p != nil && p.State == v1alpha1.ProblemGone {
		o.Gone = p.Since.Time
	}
	n, ok := v.nodes[l.d.Spec.NodeName]
	if !ok {
		_, err := l.api.CoreV1().Nodes().Get(ctx, l.d.Spec.NodeName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("node %s: %w", l.d.Spec.NodeName, err)
		}
		o.NodeGone = err != nil
		return o, nil
	}
	o.Ready = readySince(n)
	return o, nil
}

// word writes what a verification says of a repair whose end is noted since some time.
func (l *look) word(ctx context.Context, last *made, noted time.Time, v policy.Verification) error {
	l.interest = interest{node: l.d.Spec.NodeName, waits: l.interest.waits}
	status, reason, message := metav1.ConditionUnknown, v1alpha1.ReasonVerifying, fmt.Sprintf("%s ended %s, and has until %s to help", last.operation, stamp(noted), stamp(v.Deadline))
	event, kind := "", normal
	switch v.State {
	case policy.Helped:
		status, reason, event = metav1.ConditionTrue, v1alpha1.ReasonHelped, "RepairVerified"
	case policy.NotHelped:
		status, reason, event, kind = metav1.ConditionFalse, v1alpha1.ReasonNotHelped, "RepairDidNotHelp", warning
	case policy.Moot:
		reason, event = v1alpha1.ReasonMoot, "RepairMoot"
	default:
		l.at(v.Deadline.Add(time.Second)) // the problem's end may be told a little late
	}
	if event != "" {
		message = last.operation + ": " + v.Message
	}
	had := meta.FindStatusCondition(l.d.Status.Conditions, v1alpha1.ConditionVerified)
	message = safe(message, v1alpha1.MaxMessageBytes)
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
		l.tellEnd(ctx, last.operation, "", last.state, last.message)
	}
	if event != "" {
		l.counts.verifications.WithLabelValues(last.operation, string(v.State)).Inc()
		l.teller.tell(l.d, l.nodeOf(ctx), kind, event, last.operation, message)
	}
	return nil
}

// stamp writes a time as messages have it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// nodeOf returns the Diagnosis' node; nil: there is none, as far as the cache has it.
func (l *look) nodeOf(ctx context.Context) *corev1.Node {
	n := &corev1.Node{}
	if err := l.client.Get(ctx, client.ObjectKey{Name: l.d.Spec.NodeName}, n); err != nil {
		return nil
	}
	return n
}
