package repair

import (
	"context"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// reconcilePolicy settles a policy's slots and says whether it is paused: at the
// controller's start, at changes of it and of nodes, and now and then.
func (r *reconciler) reconcilePolicy(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	r.running.Store(true)
	next := reconcile.Result{RequeueAfter: r.config.Every + rand.N(r.config.Every/8+1)}
	p := &v1alpha1.RemediationPolicy{}
	if err := r.client.Get(ctx, request.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(p.Status.Repairs) > 0 {
		if err := r.sweep(ctx, p.Name, nil); err != nil {
			return reconcile.Result{}, err
		}
	}
	switch err := r.paused(ctx, p); {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("policy %s: %w", p.Name, err))
	}
	return next, nil
}

// paused writes a policy's condition Paused.
func (r *reconciler) paused(ctx context.Context, p *v1alpha1.RemediationPolicy) error {
	v, err := r.view(ctx)
	if err != nil {
		return err
	}
	read := policy.New(p)
	c := metav1.Condition{
		Type: v1alpha1.ConditionPaused, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPaused,
		Message: "repairs are made, within the other limits", ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.config.Now()),
	}
	switch d := read.Paused(v.cluster, r.config.Now()); {
	case read.Err() != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonInvalid, safe(read.Err().Error(), v1alpha1.MaxMessageBytes)
	case d.Verb != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, d.Reason, safe(d.Message, v1alpha1.MaxMessageBytes)
	}
	after := p.DeepCopy()
	meta.SetStatusCondition(&after.Status.Conditions, c)
	if equality.Semantic.DeepEqual(p.Status.Conditions, after.Status.Conditions) {
		return nil
	}
	return r.client.Status().Patch(ctx, after, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}), client.FieldOwner(name))
}

// reconcileNode removes marks of what is no longer so: were it done again by another, it
// would be taken for Kernosis' own.
func (r *reconciler) reconcileNode(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	seen := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, seen); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	_, stale, err := policy.Acts(seen)
	if err != nil {
		r.config.Log.Warn("marks of repairs can't be read: Kernosis changes nothing on the node", "node", seen.Name, "error", err)
		return reconcile.Result{}, nil
	}
	if !stale {
		return reconcile.Result{}, nil
	}
	n, err := r.api.CoreV1().Nodes().Get(ctx, seen.Name, metav1.GetOptions{})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := n.DeepCopy()
	if _, changed, err := policy.Undo(n, ""); err != nil || !changed {
		return reconcile.Result{}, err
	}
	body, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(n)
	if err != nil {
		return reconcile.Result{}, err
	}
	_, err = r.api.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: name})
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}
