package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

const (
	// anyTrigger selects all ended Diagnoses, noTrigger the Diagnoses that no Trigger has created.
	// Neither is a valid name of a Trigger.
	anyTrigger, noTrigger = "*", "-"
	// defaultHistory is the default in the API.
	defaultHistory = 100
	// historyAfter is how long ended Diagnoses are gathered before they are counted.
	historyAfter = time.Second
)

// reconcileHistory deletes ended Diagnoses of the system namespace that exceed the limit of their
// Trigger or the limit of all. A request is the name of a Trigger, or [anyTrigger].
func (r *diagnoses) reconcileHistory(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	most, reason := r.config.MaxEnded, deletedCap
	if request.Name != anyTrigger {
		var err error
		if most, err = r.historyLimit(ctx, request.Name); err != nil {
			return reconcile.Result{}, err
		}
		reason = deletedHistory
	}
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, client.InNamespace(r.config.Namespace), client.MatchingFields{indexEnded: request.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	weigh, rank := func(*v1alpha1.Diagnosis) int { return 1 }, rankOnNode(list.Items)
	if request.Name == anyTrigger {
		rank = nil
		sizes, err := r.childCounts(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		weigh = func(d *v1alpha1.Diagnosis) int { return 1 + sizes[string(d.UID)] }
	}
	slots, err := r.slotHolders(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := time.Now()
	var errs []error
	needed := func(d *v1alpha1.Diagnosis) bool {
		at, _ := endedAt(d, now)
		if d.DeletionTimestamp != nil || held(d, at, slots, now) {
			return true
		}
		yes, err := r.followed(ctx, d, slots, now)
		if err != nil {
			errs = append(errs, err)
		}
		return yes || err != nil
	}
	old, kept := surplus(list.Items, most, weigh, rank, needed)
	again := time.Duration(0)
	for _, d := range old {
		switch err := r.remove(ctx, d, reason); {
		case apierrors.IsConflict(err):
			again = historyAfter
		case client.IgnoreNotFound(err) != nil:
			errs = append(errs, err)
		}
	}
	if again == 0 && kept {
		again = heldAgain
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// historyLimit returns how many ended Diagnoses a Trigger keeps. For a deleted Trigger it is the default.
func (r *diagnoses) historyLimit(ctx context.Context, name string) (int, error) {
	t := &v1alpha1.Trigger{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, t); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if t.Spec.HistoryLimit == nil {
		return defaultHistory, nil
	}
	return int(*t.Spec.HistoryLimit), nil
}

// childCounts returns how many children each Diagnosis has, by the parent's UID.
func (r *diagnoses) childCounts(ctx context.Context) (map[string]int, error) {
	var all v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &all, client.InNamespace(r.config.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := map[string]int{}
	for i := range all.Items {
		if parent := all.Items[i].Parent(); parent != nil {
			out[string(parent.UID)]++
		}
	}
	return out, nil
}

// rankOnNode returns, by UID, how many Diagnoses of the same node ended later than each one. This rank
// keeps a node with a recurring fault from evicting the history of other nodes.
func rankOnNode(list []v1alpha1.Diagnosis) map[types.UID]int {
	newer, out := map[string]int{}, make(map[types.UID]int, len(list))
	for _, d := range slices.Backward(sortByEnd(list)) {
		out[d.UID] = newer[d.Spec.NodeName]
		newer[d.Spec.NodeName]++
	}
	return out
}

// sortByEnd returns the Diagnoses sorted by when they ended, oldest first.
func sortByEnd(list []v1alpha1.Diagnosis) []*v1alpha1.Diagnosis {
	out := make([]*v1alpha1.Diagnosis, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	now := time.Now()
	slices.SortFunc(out, func(a, b *v1alpha1.Diagnosis) int {
		endA, _ := endedAt(a, now)
		endB, _ := endedAt(b, now)
		return cmp.Or(endA.Compare(endB), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// surplus returns the ended Diagnoses to delete so that the sum of weights does not exceed most: the
// highest rank first, and within a rank the oldest. It skips Diagnoses that are still needed; kept
// reports whether the sum still exceeds the limit because of these.
func surplus(list []v1alpha1.Diagnosis, most int, weigh func(*v1alpha1.Diagnosis) int, rank map[types.UID]int, needed func(*v1alpha1.Diagnosis) bool) (out []*v1alpha1.Diagnosis, kept bool) {
	total := 0
	for i := range list {
		total += weigh(&list[i])
	}
	byEnd := sortByEnd(list)
	slices.SortStableFunc(byEnd, func(a, b *v1alpha1.Diagnosis) int { return cmp.Compare(rank[b.UID], rank[a.UID]) })
	for _, d := range byEnd {
		if total <= most {
			break
		}
		if needed(d) {
			continue
		}
		total -= weigh(d)
		out = append(out, d)
	}
	return out, total > most
}

// triggerOf returns the name of the Trigger that made a Diagnosis, or [noTrigger].
func triggerOf(d *v1alpha1.Diagnosis) string {
	return cmp.Or(d.Labels[v1alpha1.LabelTrigger], noTrigger)
}

// onEndedChange enqueues the Trigger of a Diagnosis that has ended, and all.
func (r *diagnoses) onEndedChange(_ context.Context, q Queue, was, d *v1alpha1.Diagnosis) {
	if d == nil || !d.Status.Completed() || d.Parent() != nil || d.Namespace != r.config.Namespace {
		return
	}
	if was != nil && was.Status.Completed() && unverified(was) == unverified(d) {
		return
	}
	q.AddAfter(request("", anyTrigger), historyAfter)
	if name := triggerOf(d); name != noTrigger {
		q.AddAfter(request("", name), historyAfter)
	}
}

const (
	// heldAtMost is longer than the verification of a repair can take (verifyWithin is at most 24h): a
	// repair that is not verified after that never will be.
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

// held reports whether an ended Diagnosis is still needed by its repair: because the repair is
// being verified, or holds a slot of a policy. slots has the UIDs of Diagnoses with a slot. It is
// never held longer than heldAtMost.
func held(d *v1alpha1.Diagnosis, ended time.Time, slots map[types.UID]bool, now time.Time) bool {
	return now.Sub(ended) < heldAtMost && (slots[d.UID] || unverified(d))
}

// followed reports whether an ended Diagnosis is still needed by one of its children: a follow-up
// of its repair that is not over, or whose own repair is not over.
func (r *diagnoses) followed(ctx context.Context, d *v1alpha1.Diagnosis, slots map[types.UID]bool, now time.Time) (bool, error) {
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{IndexParent: string(d.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range list.Items {
		c := &list.Items[i]
		at, over := endedAt(c, now)
		if !over || held(c, at, slots, now) {
			return true, nil
		}
		if below, err := r.followed(ctx, c, slots, now); err != nil || below {
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
func (r *diagnoses) remove(ctx context.Context, d *v1alpha1.Diagnosis, reason string) error {
	err := r.client.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err == nil {
		r.deleted.WithLabelValues(reason).Inc()
	}
	return err
}
