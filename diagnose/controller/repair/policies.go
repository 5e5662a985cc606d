package repair

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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
	after.Status.Budget = new(read.Use(v.cluster))
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

// reconcileNode removes marks of changes that are no longer in force. Otherwise, if somebody else
// made the same change again, it would be mistaken for a change of Kernosis.
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
	if _, changed, err := policy.Undo(n, func(policy.Act) bool { return false }); err != nil || !changed {
		return reconcile.Result{}, err
	}
	err = r.client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(lease.Controller))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// view is a snapshot of the cluster from the cache. It must not be changed.
type view struct {
	policies []*policy.Policy // by name
	names    []string
	objects  []*v1alpha1.RemediationPolicy
	cluster  *policy.Cluster
}

// views caches the last view until something in it changes: all waiting repairs share it, because
// listing thousands of nodes for each would cost far more than its decision.
type views struct {
	changes atomic.Uint64 // number of changes of what is in a view

	mu   sync.Mutex
	last *view
	at   uint64 // value of changes before last was made
}

// view returns the current view of the cluster.
func (r *reconciler) view(ctx context.Context) (*view, error) {
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	at := r.views.changes.Load()
	if r.views.last != nil && r.views.at == at {
		return r.views.last, nil
	}
	v, err := r.newView(ctx)
	if err == nil {
		r.views.last, r.views.at = v, at
	}
	return v, err
}

func (r *reconciler) newView(ctx context.Context) (*view, error) {
	v := &view{}
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	nodes := make([]policy.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = policy.NodeOf(&list.Items[i])
	}
	slices.SortFunc(nodes, func(a, b policy.Node) int { return cmp.Compare(a.Name, b.Name) })
	v.cluster = policy.NewCluster(nodes)
	var err error
	if v.objects, err = r.policies(ctx); err != nil {
		return nil, err
	}
	for _, p := range v.objects {
		v.policies, v.names = append(v.policies, policy.New(p)), append(v.names, p.Name)
	}
	return v, nil
}

// policies returns the cached policies, sorted by name. They must not be changed.
func (r *reconciler) policies(ctx context.Context) ([]*v1alpha1.RemediationPolicy, error) {
	var list v1alpha1.RemediationPolicyList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	var out []*v1alpha1.RemediationPolicy
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	slices.SortFunc(out, func(a, b *v1alpha1.RemediationPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// exhausted reports whether a policy's budget is used up by nodes other than the given one.
func (v *view) exhausted(name, node string) bool {
	i := slices.Index(v.names, name)
	return i >= 0 && v.policies[i].Exhausts(v.cluster, node)
}

// lacks reports whether a Diagnosis has no slot of some policy that selects its node. The cache may
// not show yet a slot that it was just given.
func (v *view) lacks(d *v1alpha1.Diagnosis) bool {
	n, has := v.cluster.Node(d.Spec.NodeName), held(v.objects, d)
	return n != nil && slices.ContainsFunc(v.policies, func(p *policy.Policy) bool { return p.Selects(n) && !slices.Contains(has, p.Name()) })
}

// held returns the names of the policies of which a Diagnosis holds a slot.
func held(policies []*v1alpha1.RemediationPolicy, d *v1alpha1.Diagnosis) []string {
	var names []string
	for _, p := range policies {
		if slices.ContainsFunc(p.Status.Repairs, func(r v1alpha1.Repair) bool { return r.Diagnosis == d.UID && r.EndTime == nil }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// cordoned returns the cluster with the current cordons. The cache may lack a cordon that Kernosis
// has just made and whose slot it has already released.
func (r *reconciler) cordoned(ctx context.Context, c *policy.Cluster) (*policy.Cluster, error) {
	var now corev1.NodeList
	if err := r.live.List(ctx, &now, client.MatchingFields{"spec.unschedulable": "true"}); err != nil {
		return nil, fmt.Errorf("cordoned nodes: %w", err)
	}
	names := sets.New[string]()
	nodes := slices.Clone(c.Nodes)
	for i := range now.Items {
		n := &now.Items[i]
		names.Insert(n.Name)
		if c.Node(n.Name) == nil {
			nodes = append(nodes, policy.NodeOf(n))
		}
	}
	for i := range nodes {
		nodes[i].Cordoned = names.Has(nodes[i].Name)
	}
	return policy.NewCluster(nodes), nil
}
