package liveness

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// trimNode keeps a Node's names, labels, conditions, whether it accepts pods, our own annotations
// and [Config.Annotations]: some 4 KiB instead of 20. The manager's other controllers use it too.
func (c *Config) trimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints},
	}
	var others []string
	if c.Annotations != nil {
		others = c.Annotations(n)
	}
	for key, value := range n.Annotations {
		if strings.HasPrefix(key, ownAnnotations) || slices.Contains(others, key) {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	for _, have := range n.Status.Conditions {
		kept := corev1.NodeCondition{Type: have.Type, Status: have.Status, Reason: have.Reason, LastTransitionTime: have.LastTransitionTime, LastHeartbeatTime: have.LastHeartbeatTime}
		if have.Reason == lease.ReasonUnknown || have.Reason == lease.ReasonNeverUpdated {
			kept.Message = have.Message // other messages are not used
		}
		out.Status.Conditions = append(out.Status.Conditions, kept)
	}
	return out, nil
}

const ownAnnotations = "kernosis.io/"

func trimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
			OwnerReferences: p.OwnerReferences, DeletionTimestamp: p.DeletionTimestamp, Labels: p.Labels,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}, nil
}

// trimSet keeps the parts of a DaemonSet that decide where its pods run.
func trimSet(object any) (any, error) {
	d, ok := object.(*appsv1.DaemonSet)
	if !ok {
		return object, nil
	}
	out := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name, Namespace: d.Namespace, UID: d.UID, ResourceVersion: d.ResourceVersion, Generation: d.Generation,
	}}
	pod := &d.Spec.Template
	out.Spec.Template.Labels = pod.Labels
	out.Spec.Template.Spec = corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, Tolerations: pod.Spec.Tolerations}
	return out, nil
}

// seen returns a handler that calls there for an existing object and gone for a deleted one. Both
// return the node to reconcile; empty: none.
func seen[T client.Object](there, gone func(T) string) handler.TypedEventHandler[T, reconcile.Request] {
	add := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], node string) {
		if node != "" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], q queue) { add(q, there(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], q queue) { add(q, there(e.ObjectNew)) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], q queue) { add(q, gone(e.Object)) },
	}
}

func (t *tracker) nodeHandler() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	return seen(func(n *corev1.Node) string {
		t.seeNode(n, time.Now())
		return n.Name
	}, func(n *corev1.Node) string {
		t.lose(n.Name, func(o *observation) { o.node, o.nodeUID, o.object = false, "", nil })
		return ""
	})
}

func (t *tracker) leaseHandler() handler.TypedEventHandler[*coordinationv1.Lease, reconcile.Request] {
	return seen(func(l *coordinationv1.Lease) string {
		node, ok := lease.NodeOf(l)
		if !ok || !t.seeLease(node, l, time.Now()) {
			return ""
		}
		return node
	}, func(l *coordinationv1.Lease) string {
		node, ok := lease.NodeOf(l)
		if !ok {
			return ""
		}
		// Its agent stays as silent as it was, and has left the conditions that it listed.
		t.lose(node, func(o *observation) { o.lease = false })
		return node
	})
}

func (t *tracker) podHandler() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	gone := func(p *corev1.Pod) string {
		t.lose(p.Spec.NodeName, func(o *observation) { delete(o.pods, p.UID) })
		return p.Spec.NodeName
	}
	return seen(func(p *corev1.Pod) string {
		if !runs(p) {
			return gone(p)
		}
		t.seePod(p, time.Now())
		return p.Spec.NodeName
	}, gone)
}

// setHandler returns the handler of DaemonSets. It ignores those whose pods are not the agents'.
// If they no longer want a pod on a node, the node is judged when its pod is deleted.
func (t *tracker) setHandler(pods labels.Selector) handler.TypedEventHandler[*appsv1.DaemonSet, reconcile.Request] {
	gone := func(d *appsv1.DaemonSet) string {
		t.loseSet(d.Name)
		return ""
	}
	return seen(func(d *appsv1.DaemonSet) string {
		if !pods.Matches(labels.Set(d.Spec.Template.Labels)) {
			return gone(d)
		}
		t.seeSet(d)
		return ""
	}, gone)
}
