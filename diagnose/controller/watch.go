package controller

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// queue takes requests to reconcile.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// sources returns what Diagnoses depend on.
func (r *diagnoses) sources(kinds cache.Cache) []source.Source {
	return []source.Source{
		source.Kind(kinds, &v1alpha1.Diagnosis{}, r.diagnosisHandler()),
		source.Kind(kinds, &corev1.Node{}, r.nodeHandler()),
		source.Kind(kinds, &coordinationv1.Lease{}, r.leaseHandler()),
	}
}

// diagnosisHandler enqueues changed Diagnoses. It also reports changes, because only here both
// versions are known.
func (r *diagnoses) diagnosisHandler() handler.TypedEventHandler[*v1alpha1.Diagnosis, reconcile.Request] {
	add := func(q queue, d *v1alpha1.Diagnosis) { q.Add(request(d.Namespace, d.Name)) }
	parent := func(q queue, d *v1alpha1.Diagnosis) {
		if p := d.Parent(); p != nil {
			q.AddAfter(request(d.Namespace, p.Name), countEvery)
		}
	}
	return handler.TypedFuncs[*v1alpha1.Diagnosis, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.Diagnosis], q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.Diagnosis], q queue) {
			r.report.changed(e.ObjectOld, e.ObjectNew)
			add(q, e.ObjectNew)
			before := e.ObjectOld.Status.Completed()
			if e.ObjectNew.Status.Completed() && !before {
				parent(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*v1alpha1.Diagnosis], q queue) {
			parent(q, e.Object)
			r.addListed(ctx, q, client.InNamespace(e.Object.Namespace), client.MatchingFields{indexParent: string(e.Object.UID)})
		},
	}
}

// nodeHandler enqueues the Diagnoses of deleted Nodes.
func (r *diagnoses) nodeHandler() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	on := func(ctx context.Context, q queue, node string) {
		r.addListed(ctx, q, client.MatchingFields{indexNode: node})
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			r.agents.forget(e.Object.Name)
			on(ctx, q, e.Object.Name)
		},
	}
}

// leaseHandler enqueues a node's Diagnoses when its agent reports again.
func (r *diagnoses) leaseHandler() handler.TypedEventHandler[*coordinationv1.Lease, reconcile.Request] {
	see := func(ctx context.Context, q queue, l *coordinationv1.Lease) {
		if node := nodeOf(l); node != "" && r.agents.see(node, l, time.Now()) {
			r.addListed(ctx, q, client.MatchingFields{indexNode: node})
		}
	}
	return handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], q queue) {
			see(ctx, q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], q queue) {
			see(ctx, q, e.ObjectNew)
		},
	}
}

// addListed enqueues Diagnoses from the cache. If the cache is not synced yet nothing is lost: each
// Diagnosis is enqueued when it is first seen.
func (r *diagnoses) addListed(ctx context.Context, q queue, which ...client.ListOption) {
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		return // the cache is ending
	}
	for i := range list.Items {
		q.Add(request(list.Items[i].Namespace, list.Items[i].Name))
	}
}
