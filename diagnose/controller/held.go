package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

const (
	// heldAtMost is longer than the verification of a repair can take (verifyWithin is at most
	// 24h): a repair not verified by then never will be.
	heldAtMost = 25 * time.Hour
	// heldAgain is how often a Diagnosis that is kept because of a slot is checked again.
	heldAgain = 5 * time.Minute
)

// endedAt returns when a Diagnosis ended, if it has. The time comes from the node's clock, which
// may be wrong; it is limited to the range from the Diagnosis' creation to now.
func endedAt(d *v1alpha1.Diagnosis, now time.Time) (at time.Time, ok bool) {
	if at, ok = d.Status.CompletedAt(); !ok {
		return at, false
	}
	if at.Before(d.CreationTimestamp.Time) {
		at = d.CreationTimestamp.Time
	}
	if at.After(now) {
		at = now
	}
	return at, true
}

// expires returns when an ended Diagnosis is to be deleted.
func expires(d *v1alpha1.Diagnosis, ended time.Time) time.Time {
	return ended.Add(cmp.Or(d.Spec.TTL.Duration, v1alpha1.DefaultTTL))
}

// held reports whether an ended Diagnosis is still needed by its repair: because the repair is
// being verified, or holds a slot of a policy. slots has the UIDs of Diagnoses with a slot. It is
// never held longer than heldAtMost.
func held(d *v1alpha1.Diagnosis, ended time.Time, slots map[types.UID]bool, now time.Time) bool {
	return now.Sub(ended) < heldAtMost && (slots[d.UID] || unverified(d))
}

// followed reports whether an ended Diagnosis is still needed by one of its children: a follow-up
// of its repair that is not over, or whose own repair is not over.
func followed(ctx context.Context, from client.Reader, d *v1alpha1.Diagnosis, slots map[types.UID]bool, now time.Time) (bool, error) {
	var list v1alpha1.DiagnosisList
	if err := from.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{indexParent: string(d.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range list.Items {
		c := &list.Items[i]
		at, over := endedAt(c, now)
		if !over || held(c, at, slots, now) {
			return true, nil
		}
		if below, err := followed(ctx, from, c, slots, now); err != nil || below {
			return below, err
		}
	}
	return false, nil
}

// unverified reports whether a repair was run and its verification has no result yet.
func unverified(d *v1alpha1.Diagnosis) bool {
	c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	if c != nil && (c.Status != metav1.ConditionUnknown || c.Reason == v1alpha1.ReasonMoot) {
		return false
	}
	return slices.ContainsFunc(d.Status.Remediations, func(r v1alpha1.Remediation) bool { return r.Verb == v1alpha1.RemediationRun })
}

// Reasons why Diagnoses are deleted.
const (
	deletedTTL     = "ttl"
	deletedHistory = "history" // over the limit of their Trigger
	deletedCap     = "cap"     // over the limit of all
	deletedParent  = "parent"  // their parent is gone
)

// remove deletes a Diagnosis as it was read, and counts it. If it has changed since, remove leaves
// it and returns a conflict error.
func remove(ctx context.Context, c client.Client, deleted *prometheus.CounterVec, d *v1alpha1.Diagnosis, reason string) error {
	err := c.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err == nil {
		deleted.WithLabelValues(reason).Inc()
	}
	return err
}
