package repair

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// onDiagnosis enqueues a changed Diagnosis and the one whose repair it follows. If its problem has
// changed, it also enqueues its descendants. If it has ended, or its attempted repairs have
// changed, it also enqueues the Diagnoses of its node, because their repairs wait for that.
func (r *reconciler) onDiagnosis() handler.TypedEventHandler[*v1alpha1.Diagnosis, reconcile.Request] {
	add := func(d *v1alpha1.Diagnosis, q queue) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		if name, _, ok := followed(d); ok {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: name}})
		}
	}
	return handler.TypedFuncs[*v1alpha1.Diagnosis, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.Diagnosis], q queue) { add(e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*v1alpha1.Diagnosis], q queue) {
			add(e.ObjectNew, q)
			if !equality.Semantic.DeepEqual(e.ObjectOld.Status.Problem, e.ObjectNew.Status.Problem) {
				r.below(ctx, e.ObjectNew, q)
			}
			if was, is := e.ObjectOld, e.ObjectNew; was.Status.Phase.Ended() != is.Status.Phase.Ended() || !slices.Equal(attemptsOf(was), attemptsOf(is)) {
				for _, request := range r.about(ctx, e.ObjectNew.Spec.NodeName) {
					q.Add(request)
				}
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.Diagnosis], q queue) { add(e.Object, q) },
	}
}

// below enqueues the children of a Diagnosis, and theirs.
func (r *reconciler) below(ctx context.Context, d *v1alpha1.Diagnosis, q queue) {
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{byParent: string(d.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is ending
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		r.below(ctx, &list.Items[i], q)
	}
}

// onAny enqueues what of returns, at any change of an object.
func onAny[T client.Object](of func() []reconcile.Request) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, T) []reconcile.Request { return of() })
}

// onPolicy enqueues the Diagnoses whose repair waits, when a policy is created, deleted, or changed
// in what decisions depend on: its spec, and the nodes under repair or in cooldown.
func (r *reconciler) onPolicy() handler.TypedEventHandler[*v1alpha1.RemediationPolicy, reconcile.Request] {
	add := func(q queue) {
		r.views.changes.Add(1)
		for _, request := range r.waiting() {
			q.Add(request)
		}
	}
	return handler.TypedFuncs[*v1alpha1.RemediationPolicy, reconcile.Request]{
		CreateFunc: func(_ context.Context, _ event.TypedCreateEvent[*v1alpha1.RemediationPolicy], q queue) { add(q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.RemediationPolicy], q queue) {
			switch a, b := e.ObjectOld, e.ObjectNew; {
			case a.UID != b.UID || a.Generation != b.Generation:
				add(q)
			case !equality.Semantic.DeepEqual(a.Status.Repairs, b.Status.Repairs) || !equality.Semantic.DeepEqual(a.Status.Cooldowns, b.Status.Cooldowns):
				r.views.changes.Add(1)
				q.AddAfter(wakeAll(), wakeAfter)
			}
		},
		DeleteFunc: func(_ context.Context, _ event.TypedDeleteEvent[*v1alpha1.RemediationPolicy], q queue) { add(q) },
	}
}

// onNode enqueues what of returns, and soon after wakeAfter, when a node is created, deleted, or
// changed in what decisions and verifications depend on. Most changes of nodes are irrelevant.
func (r *reconciler) onNode(of func(ctx context.Context, node string) []reconcile.Request, soon ...reconcile.Request) handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	add := func(ctx context.Context, n *corev1.Node, q queue) {
		r.views.changes.Add(1)
		for _, request := range of(ctx, n.Name) {
			q.Add(request)
		}
		for _, request := range soon {
			q.AddAfter(request, wakeAfter)
		}
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			if matters(e.ObjectOld, e.ObjectNew) {
				add(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) { add(ctx, e.Object, q) },
	}
}

func matters(before, after *corev1.Node) bool {
	a, b := policy.NodeOf(before), policy.NodeOf(after)
	return a.Ready != b.Ready || a.Cordoned != b.Cordoned || a.ControlPlane != b.ControlPlane || !maps.Equal(a.Labels, b.Labels) ||
		!readySince(before).Equal(readySince(after))
}

// readySince returns since when a node is ready; zero: it is not.
func readySince(n *corev1.Node) time.Time {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return time.Time{}
	}
	return n.Status.Conditions[i].LastTransitionTime.Time
}
