package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// diagnoses reconciles Diagnoses. One Diagnosis is never reconciled twice at the same time.
type diagnoses struct {
	*names
	config   *Config
	agents   *agents
	deleted  *prometheus.CounterVec // by reason
	recorder events.EventRecorder
}

// Reconcile reconciles one Diagnosis.
func (r *diagnoses) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	d := &v1alpha1.Diagnosis{}
	if err := r.client.Get(ctx, request.NamespacedName, d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if d.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	result, err := r.look(ctx, d)
	return settled(ctx, result, err)
}

func (r *diagnoses) look(ctx context.Context, d *v1alpha1.Diagnosis) (reconcile.Result, error) {
	if gone, err := r.orphaned(ctx, d); err != nil || gone {
		return reconcile.Result{}, err
	}
	if at, ended := endedAt(d, time.Now()); ended {
		return r.keep(ctx, d, at)
	}
	if tenancy.Applies(d, r.config.Namespace) {
		if no, err := r.refusal(ctx, d); err != nil || no != (refused{}) {
			return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseFailed, no.reason, no.message, err)
		}
	}
	switch {
	case d.Spec.TargetSelector != nil:
		return r.fanOut(ctx, d)
	case d.Spec.NodeName == "":
		return r.place(ctx, d)
	}
	return r.onNode(ctx, d)
}

// onNode reconciles a Diagnosis that has a node.
func (r *diagnoses) onNode(ctx context.Context, d *v1alpha1.Diagnosis) (reconcile.Result, error) {
	if why, err := r.contradiction(ctx, d); err != nil || why != "" {
		return reconcile.Result{}, r.end(ctx, d, v1alpha1.PhaseFailed, v1alpha1.ReasonPodNotFound, why, err)
	}
	there, err := r.nodeExists(ctx, d.Spec.NodeName)
	if err != nil {
		return reconcile.Result{}, err
	}
	s := ends(d, v1alpha1.ReasonNodeNotFound, "no node is named "+d.Spec.NodeName)
	if there {
		if s, err = r.judge(ctx, d); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: s.again}, r.write(ctx, d, &s)
}

// judge returns the next step of a Diagnosis whose node exists. Before it ends one because of a
// silent agent, it reads the Lease from the API server: after an outage the cache may be stale.
func (r *diagnoses) judge(ctx context.Context, d *v1alpha1.Diagnosis) (step, error) {
	node, now := d.Spec.NodeName, time.Now()
	holder := ""
	if c := d.Status.Checkpoint; c != nil {
		holder = c.Holder
	}
	a := r.agents.of(node, holder, now)
	s := judge(d, a, r.config, now)
	if s.phase == "" || a.alive {
		return s, nil
	}
	l := &coordinationv1.Lease{}
	err := r.api.Get(ctx, client.ObjectKey{Namespace: r.config.Namespace, Name: lease.Name(node)}, l)
	if err != nil {
		return s, client.IgnoreNotFound(err)
	}
	if name, ok := lease.NodeOf(l); ok && name == node && r.agents.see(node, l, now) {
		s = judge(d, r.agents.of(node, holder, now), r.config, now)
	}
	return s, nil
}

// nodeExists asks the API server if the cache has no such Node: it may have just been created.
func (r *diagnoses) nodeExists(ctx context.Context, name string) (bool, error) {
	key := client.ObjectKey{Name: name}
	err := r.client.Get(ctx, key, &corev1.Node{}, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = r.api.Get(ctx, key, &corev1.Node{})
	}
	return err == nil, client.IgnoreNotFound(err)
}

// write applies a step to the status. d must be as it was read.
func (r *diagnoses) write(ctx context.Context, d *v1alpha1.Diagnosis, s *step) error {
	next := d.DeepCopy()
	apply(next, s, time.Now())
	return writeStatus(ctx, r.client, d, next)
}

// end ends a Diagnosis. A non-nil err means that the decision failed; end only returns it.
func (r *diagnoses) end(ctx context.Context, d *v1alpha1.Diagnosis, phase v1alpha1.Phase, reason, message string, err error) error {
	if err != nil {
		return err
	}
	s := step{phase: phase, reason: reason, message: message}
	if phase == v1alpha1.PhaseFailed {
		s = ends(d, reason, message)
	}
	return r.write(ctx, d, &s)
}

// keep deletes an ended Diagnosis once its TTL is over. A Diagnosis with a parent is deleted
// together with the parent.
func (r *diagnoses) keep(ctx context.Context, d *v1alpha1.Diagnosis, ended time.Time) (reconcile.Result, error) {
	if d.Parent() != nil {
		return reconcile.Result{}, nil
	}
	now := time.Now()
	if left := ended.Add(cmp.Or(d.Spec.TTL.Duration, v1alpha1.DefaultTTL)).Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	slots, err := r.slotHolders(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	needed := held(d, ended, slots, now)
	if !needed {
		if needed, err = r.followed(ctx, d, slots, now); err != nil {
			return reconcile.Result{}, err
		}
	}
	if needed {
		return reconcile.Result{RequeueAfter: heldAgain}, nil
	}
	return reconcile.Result{}, r.remove(ctx, d, deletedTTL)
}

// orphaned deletes a Diagnosis whose parent is gone, sooner than the garbage collector would.
func (r *diagnoses) orphaned(ctx context.Context, d *v1alpha1.Diagnosis) (bool, error) {
	parent := d.Parent()
	if parent == nil {
		return false, nil
	}
	key, owner := client.ObjectKey{Namespace: d.Namespace, Name: parent.Name}, &v1alpha1.Diagnosis{}
	err := r.client.Get(ctx, key, owner, client.UnsafeDisableDeepCopy)
	if err == nil && owner.UID == parent.UID {
		return false, nil
	}
	owner = &v1alpha1.Diagnosis{}
	switch err = r.api.Get(ctx, key, owner); {
	case client.IgnoreNotFound(err) != nil:
		return false, err
	case err == nil && owner.UID == parent.UID:
		return false, nil
	}
	return true, r.remove(ctx, d, deletedParent)
}

// slotHolders returns the UIDs of the Diagnoses that hold a slot of a policy.
func (r *diagnoses) slotHolders(ctx context.Context) (map[types.UID]bool, error) {
	var list v1alpha1.RemediationPolicyList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := map[types.UID]bool{}
	for i := range list.Items {
		for _, r := range list.Items[i].Status.Repairs {
			if r.EndTime == nil {
				out[r.Diagnosis] = true
			}
		}
	}
	return out, nil
}

// afterConflict leaves the cache time to receive the newer version.
const afterConflict = 200 * time.Millisecond

// writeStatus patches the difference between was and next, and fails with a conflict if somebody
// else has written since was read. next is updated from the response.
func writeStatus[T client.Object](ctx context.Context, c client.Client, was, next T) error {
	if equality.Semantic.DeepEqual(was, next) {
		return nil
	}
	patch := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
	return c.Status().Patch(ctx, next, patch, client.FieldOwner(lease.Controller))
}

// settled returns when to reconcile again after an error. After a conflict it retries soon; an
// object that is gone needs no retry.
func settled(ctx context.Context, result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: afterConflict}, nil
	case apierrors.IsNotFound(err), ctx.Err() != nil: // gone, or the controller is stopping
		return reconcile.Result{}, nil //nolint:nilerr // neither needs a retry
	}
	return result, err
}

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
		st.Phase, st.CompletionTime, st.ObservedGeneration = s.phase, new(metav1.NewMicroTime(now)), d.Generation
		if st.Subject == "" {
			st.Subject = d.Spec.NodeName
			if p := d.Pod(); p.Name != "" {
				st.Subject = p.String()
			}
			st.Subject = display.Safe(st.Subject, 250)
		}
		complete(d, metav1.ConditionTrue, s.reason, s.message, now)
	case s.waits():
		st.Phase = cmp.Or(st.Phase, v1alpha1.PhasePending)
		if waitsFor(d) != s.reason {
			apimeta.RemoveStatusCondition(&st.Conditions, v1alpha1.ConditionComplete) // so that the transition time is when this wait began
		}
		complete(d, metav1.ConditionFalse, s.reason, s.message, now)
	default:
		// The wait is over. The agent writes the phase within a second, so none is written here:
		// the API server matches each write against every agent's watch.
		if why := waitsFor(d); why == v1alpha1.ReasonAgentSilent || why == v1alpha1.ReasonPodNotScheduled {
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
