package repair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

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

// cordoned returns the cluster with the current cordons. The cache may not show yet a cordon that
// Kernosis has just made, and whose slot it has released since.
func (r *reconciler) cordoned(ctx context.Context, c *policy.Cluster) (*policy.Cluster, error) {
	var now corev1.NodeList
	if err := r.live.List(ctx, &now, client.MatchingFields{"spec.unschedulable": "true"}); err != nil {
		return nil, fmt.Errorf("cordoned nodes: %w", err)
	}
	names := sets.New[string]()
	out := &policy.Cluster{Nodes: slices.Clone(c.Nodes)}
	for i := range now.Items {
		n := &now.Items[i]
		names.Insert(n.Name)
		if c.Node(n.Name) == nil {
			out.Nodes = append(out.Nodes, policy.NodeOf(n))
		}
	}
	for i := range out.Nodes {
		out.Nodes[i].Cordoned = names.Has(out.Nodes[i].Name)
	}
	return out, nil
}
