package repair

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// reportEvery is the shortest interval between writes of a policy's status because of node changes:
// nodes come and go by the hundred.
const reportEvery = 5 * time.Second

// reconcilePolicy settles a policy's slots and reports whether it is valid, whether it is paused,
// and how much of its budget is used. It runs at the controller's start, when the policy or nodes
// change, and periodically.
func (r *reconciler) reconcilePolicy(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	r.running.Store(true)
	next := reconcile.Result{RequeueAfter: r.config.Every + rand.N(r.config.Every/8+1)}
	p := &v1alpha1.RemediationPolicy{}
	if err := r.client.Get(ctx, request.NamespacedName, p); err != nil {
		delete(r.reported, request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(p.Status.Repairs)+len(p.Status.Cooldowns) > 0 {
		if err := r.sweep(ctx, p.Name, nil); err != nil {
			return reconcile.Result{}, err
		}
	}
	early, err := r.report(ctx, p)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("policy %s: %w", p.Name, err))
	case early > 0:
		next.RequeueAfter = min(next.RequeueAfter, early)
	}
	return next, nil
}

// report writes a policy's conditions and budget use if they have changed. If it has written
// recently and the policy's spec is the same, it only returns when it may write again.
func (r *reconciler) report(ctx context.Context, p *v1alpha1.RemediationPolicy) (early time.Duration, err error) {
	v, err := r.view(ctx)
	if err != nil {
		return 0, err
	}
	read, now := policy.New(p), r.config.Now()
	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "the policy is in force"}
	paused := metav1.Condition{Type: v1alpha1.ConditionPaused, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPaused, Message: "repairs are allowed within the other limits"}
	switch d := read.Paused(v.cluster, now); {
	case read.Err() != nil:
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalid, "spec."+read.Err().Error()
		paused.Status, paused.Reason, paused.Message = metav1.ConditionTrue, v1alpha1.ReasonInvalid, read.Err().Error()
	case d.Verb != "":
		paused.Status, paused.Reason, paused.Message = metav1.ConditionTrue, d.Reason, d.Message
	}
	after := p.DeepCopy()
	for _, c := range []metav1.Condition{accepted, paused} {
		c.Message, c.ObservedGeneration, c.LastTransitionTime = display.Bounded(c.Message, v1alpha1.MaxMessageBytes), p.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&after.Status.Conditions, c)
	}
	use := read.Use(v.cluster)
	after.Status.Budget = &use
	if equality.Semantic.DeepEqual(&p.Status, &after.Status) {
		return 0, nil
	}
	last := r.reported[p.Name]
	if early := time.Until(last.at.Add(reportEvery)); early > 0 && last.generation == p.Generation {
		return early, nil
	}
	if err := r.client.Status().Patch(ctx, after, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}), client.FieldOwner(lease.Controller)); err != nil {
		return 0, err
	}
	r.reported[p.Name] = reported{at: time.Now(), generation: p.Generation}
	return 0, nil
}

// reported is when a policy's status was last written, and for which generation.
type reported struct {
	at         time.Time
	generation int64
}

// reconcileNode removes marks of changes that are no longer in force: if somebody else made the
// same change again, it would be mistaken for Kernosis' own.
func (r *reconciler) reconcileNode(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	seen := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, seen); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	_, stale, err := policy.Acts(seen)
	if err != nil {
		r.config.Log.Warn("can't read the marks of repairs; Kernosis will not change the node", "node", seen.Name, "error", err)
		return reconcile.Result{}, nil
	}
	if !stale || r.config.DryRun { // in a dry run it may have no right to write Nodes
		return reconcile.Result{}, nil
	}
	n := &corev1.Node{}
	if err := r.live.Get(ctx, request.NamespacedName, n); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := n.DeepCopy()
	if _, changed, err := policy.Undo(n, ""); err != nil || !changed {
		return reconcile.Result{}, err
	}
	err = r.client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(lease.Controller))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}
