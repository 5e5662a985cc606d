package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// afterConflict leaves the cache time to receive the newer version.
const afterConflict = 200 * time.Millisecond

// writeStatus patches the difference between was and next, and fails with a conflict if somebody
// else has written since was read. It returns whether there was a difference; next is then updated
// from the response.
func writeStatus[T client.Object](ctx context.Context, c client.Client, was, next T) (bool, error) {
	if equality.Semantic.DeepEqual(was, next) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
	return true, c.Status().Patch(ctx, next, patch, client.FieldOwner(lease.Controller))
}

// settled returns when to reconcile again after an error. After a conflict it retries soon; an
// object that is gone needs no retry.
func settled(ctx context.Context, result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: afterConflict}, nil
	case apierrors.IsNotFound(err), over(ctx):
		return reconcile.Result{}, nil
	}
	return result, err
}

// over reports whether the controller is stopping.
func over(ctx context.Context) bool { return ctx.Err() != nil }

// accept sets the condition Accepted.
func accept(conditions *[]metav1.Condition, generation int64, ok bool, reason, message string) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	apimeta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}

// bounded sanitizes and truncates a text for a message. Line breaks are kept.
func bounded(text string) string {
	return display.Safe(text, v1alpha1.MaxMessageBytes-len("…"))
}

// apply applies a step to the status.
func apply(d *v1alpha1.Diagnosis, s *step, now time.Time) {
	st := &d.Status
	switch {
	case s.phase != "":
		at := metav1.NewMicroTime(now)
		st.Phase, st.CompletionTime, st.ObservedGeneration = s.phase, &at, d.Generation
		if st.Subject == "" {
			st.Subject = display.Safe(subject(d), 250)
		}
		complete(d, metav1.ConditionTrue, s.reason, s.message, now)
	case s.waits():
		if st.Phase == "" {
			st.Phase = v1alpha1.PhasePending
		}
		if c := apimeta.FindStatusCondition(st.Conditions, v1alpha1.ConditionComplete); c != nil && c.Reason != s.reason {
			apimeta.RemoveStatusCondition(&st.Conditions, v1alpha1.ConditionComplete) // so that the transition time is when this wait began
		}
		complete(d, metav1.ConditionFalse, s.reason, s.message, now)
	default:
		// The wait is over. The agent writes the phase within a second, so none is written here:
		// the API server matches each write against every agent's watch.
		c := apimeta.FindStatusCondition(st.Conditions, v1alpha1.ConditionComplete)
		if c != nil && (c.Reason == v1alpha1.ReasonAgentSilent || c.Reason == v1alpha1.ReasonPodNotScheduled) {
			apimeta.RemoveStatusCondition(&st.Conditions, v1alpha1.ConditionComplete)
		}
	}
}

func complete(d *v1alpha1.Diagnosis, status metav1.ConditionStatus, reason, message string, now time.Time) {
	apimeta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionComplete, Status: status, Reason: reason, Message: bounded(message), ObservedGeneration: d.Generation,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// subject returns a human-readable name of what a Diagnosis is about.
func subject(d *v1alpha1.Diagnosis) string {
	if p := d.Pod(); p.Name != "" {
		return p.String()
	}
	return d.Spec.NodeName
}
