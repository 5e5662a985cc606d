package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// Defaults of a [Config].
const (
	// DefaultSilent is the same as in package liveness.
	DefaultSilent = 50 * time.Second
	// DefaultPodWait is longer than scheduling a pod takes if it is possible at all.
	DefaultPodWait = 5 * time.Minute
	// DefaultPendingSilent is longer than a reboot of the node or an upgrade of the agent.
	DefaultPendingSilent = 10 * time.Minute
	// DefaultRunningSilent leaves a partitioned node time to come back, and its agent time to
	// report the result of the run.
	DefaultRunningSilent = time.Hour
	// DefaultMaxEnded Diagnoses of some ten KiB each use a small part of etcd's quota.
	DefaultMaxEnded = 2000
	// DefaultWorkers is the same as in package liveness.
	DefaultWorkers = 8
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the system
	// Builtins are the built-in operations of the agents.
	Builtins []operation.Builtin

	// Silent is how long after the last renewal of its Lease an agent counts as silent; 0:
	// [DefaultSilent].
	Silent time.Duration
	// PodWait is how long a pod may stay unscheduled; 0: [DefaultPodWait].
	PodWait time.Duration
	// PendingSilent and RunningSilent are how long an agent may be silent before a pending or
	// running Diagnosis of its node is ended; 0: [DefaultPendingSilent], [DefaultRunningSilent].
	// RunningSilent also bounds how long an agent that reports may leave a Diagnosis pending.
	PendingSilent, RunningSilent time.Duration
	// MaxEnded is how many ended Diagnoses are kept in the system namespace; 0: [DefaultMaxEnded].
	MaxEnded int
	Workers  int // how many Diagnoses are reconciled in parallel; 0: [DefaultWorkers]

	// Metrics is where the controller's metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: no log
}

func (c *Config) setDefaults() error {
	if c.Namespace == "" {
		return errors.New("no namespace")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		other time.Duration
	}{
		{"silent", &c.Silent, DefaultSilent}, {"pod wait", &c.PodWait, DefaultPodWait},
		{"pending silent", &c.PendingSilent, DefaultPendingSilent}, {"running silent", &c.RunningSilent, DefaultRunningSilent},
	} {
		if *d.value < 0 {
			return fmt.Errorf("%s: %s is negative", d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.other)
	}
	if c.MaxEnded < 0 || c.Workers < 0 {
		return fmt.Errorf("%d ended Diagnoses, %d workers: want no negative number", c.MaxEnded, c.Workers)
	}
	c.MaxEnded, c.Workers = cmp.Or(c.MaxEnded, DefaultMaxEnded), cmp.Or(c.Workers, DefaultWorkers)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return nil
}

// Add adds the controller to a running manager whose API server serves the kinds of [Served]; see
// [leader.WhenServed]. Its metrics stay registered until remove is called.
func Add(m manager.Manager, c Config) (remove func(), err error) {
	if remove, err = add(m, &c); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return remove, nil
}

func add(m manager.Manager, c *Config) (remove func(), err error) {
	if err := errors.Join(c.setDefaults(), index(m.GetFieldIndexer())); err != nil {
		return nil, err
	}
	names := &names{client: m.GetClient(), api: m.GetAPIReader(), builtins: c.Builtins}
	d := &diagnoses{
		names: names, config: c, agents: newAgents(c.Silent), deleted: newDeleted(),
		recorder: m.GetEventRecorder(lease.Controller),
	}
	kinds := m.GetCache()
	if err := errors.Join(
		leader.Reconcile(m, "operationsets", 1, reconcile.Func(names.reconcileSet),
			source.Kind(kinds, &v1alpha1.OperationSet{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.OperationSet]{}),
			source.Kind(kinds, &v1alpha1.Operation{}, names.operationHandler())),
		leader.Reconcile(m, "triggers", 1, reconcile.Func(names.reconcileTrigger),
			source.Kind(kinds, &v1alpha1.Trigger{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.Trigger]{}),
			source.Kind(kinds, &v1alpha1.OperationSet{}, names.setHandler())),
		leader.Reconcile(m, "diagnoses", c.Workers, d,
			source.Kind(kinds, &v1alpha1.Diagnosis{}, OnChange(d.onDiagnosisChange)),
			source.Kind(kinds, &corev1.Node{}, OnChange(d.onNodeChange)),
			source.Kind(kinds, &coordinationv1.Lease{}, OnChange(d.onLeaseChange))),
		leader.Reconcile(m, "diagnosishistory", 1, reconcile.Func(d.reconcileHistory),
			source.Kind(kinds, &v1alpha1.Diagnosis{}, OnChange(d.onEndedChange)),
			source.Kind(kinds, &v1alpha1.Trigger{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.Trigger]{})),
	); err != nil {
		return nil, err
	}
	own := prometheus.NewRegistry()
	own.MustRegister(d.deleted, &phases{kinds})
	return leader.Register(c.Metrics, own)
}

// IndexParent is the index of cached Diagnoses by their parent's UID. [Add] adds it.
const IndexParent = "controller/parent"

// Names of the other indexes of cached Diagnoses.
const (
	indexNode  = "controller/node"  // Diagnoses that have not ended, by spec.nodeName
	indexEnded = "controller/ended" // ended Diagnoses without a parent, by the Trigger's name
)

// IndexParents adds the index [IndexParent] to a manager without this package's controllers.
func IndexParents(to client.FieldIndexer) error {
	return indexed(to, IndexParent, func(d *v1alpha1.Diagnosis) []string {
		if parent := d.Parent(); parent != nil {
			return []string{string(parent.UID)}
		}
		return nil
	})
}

func indexed(to client.FieldIndexer, name string, value func(*v1alpha1.Diagnosis) []string) error {
	return to.IndexField(context.Background(), &v1alpha1.Diagnosis{}, name,
		func(o client.Object) []string { return value(o.(*v1alpha1.Diagnosis)) })
}

// index adds the indexes.
func index(to client.FieldIndexer) error {
	return errors.Join(
		IndexParents(to),
		indexed(to, indexNode, func(d *v1alpha1.Diagnosis) []string {
			if d.Status.Completed() || d.Spec.NodeName == "" {
				return nil
			}
			return []string{d.Spec.NodeName}
		}),
		indexed(to, indexEnded, func(d *v1alpha1.Diagnosis) []string {
			if !d.Status.Completed() || d.Parent() != nil {
				return nil
			}
			return []string{triggerOf(d), anyTrigger}
		}),
	)
}

// Queue takes requests to reconcile.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// OnChange returns a handler that calls f for each change of an object. was is nil for a new object,
// is for a deleted one.
func OnChange[T client.Object](f func(ctx context.Context, q Queue, was, is T)) handler.TypedEventHandler[T, reconcile.Request] {
	var none T
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q Queue) { f(ctx, q, none, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q Queue) {
			f(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q Queue) { f(ctx, q, e.Object, none) },
	}
}

// onDiagnosisChange enqueues a changed Diagnosis. It also reports changes, because only this function has
// both versions.
func (r *diagnoses) onDiagnosisChange(ctx context.Context, q Queue, was, is *v1alpha1.Diagnosis) {
	parent := func(d *v1alpha1.Diagnosis) {
		if p := d.Parent(); p != nil {
			q.AddAfter(request(d.Namespace, p.Name), countEvery)
		}
	}
	if is == nil {
		parent(was)
		r.addListed(ctx, q, client.InNamespace(was.Namespace), client.MatchingFields{IndexParent: string(was.UID)})
		return
	}
	if was != nil {
		r.reportChange(was, is)
		if is.Status.Completed() && !was.Status.Completed() {
			parent(is)
		}
	}
	q.Add(request(is.Namespace, is.Name))
}

// onNodeChange enqueues the Diagnoses of a deleted Node.
func (r *diagnoses) onNodeChange(ctx context.Context, q Queue, was, is *corev1.Node) {
	if is == nil {
		r.agents.forget(was.Name)
		r.addListed(ctx, q, client.MatchingFields{indexNode: was.Name})
	}
}

// onLeaseChange enqueues a node's Diagnoses when its agent reports again.
func (r *diagnoses) onLeaseChange(ctx context.Context, q Queue, _, l *coordinationv1.Lease) {
	if l == nil {
		return
	}
	if node, ok := lease.NodeOf(l); ok && r.agents.see(node, l, time.Now()) {
		r.addListed(ctx, q, client.MatchingFields{indexNode: node})
	}
}

// addListed enqueues Diagnoses from the cache. If the cache is not synced yet nothing is lost: each
// Diagnosis is enqueued when it is first seen.
func (r *diagnoses) addListed(ctx context.Context, q Queue, which ...client.ListOption) {
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		return // the cache is ending
	}
	for i := range list.Items {
		q.Add(request(list.Items[i].Namespace, list.Items[i].Name))
	}
}
