package repair

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// view is the cluster as the cache has it.
type view struct {
	policies []*policy.Policy // by name
	names    []string
	objects  []*v1alpha1.RemediationPolicy // not to be changed
	cluster  *policy.Cluster
	nodes    map[string]*corev1.Node // not to be changed
}

func (r *reconciler) view(ctx context.Context) (*view, error) {
	v := &view{cluster: &policy.Cluster{}, nodes: map[string]*corev1.Node{}}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	v.cluster.Nodes = make([]policy.Node, len(nodes.Items))
	for i := range nodes.Items {
		v.cluster.Nodes[i] = policy.NodeOf(&nodes.Items[i])
		v.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	slices.SortFunc(v.cluster.Nodes, func(a, b policy.Node) int { return cmp.Compare(a.Name, b.Name) })
	var err error
	if v.objects, err = r.policies(ctx); err != nil {
		return nil, err
	}
	for _, p := range v.objects {
		v.policies, v.names = append(v.policies, policy.New(p)), append(v.names, p.Name)
	}
	return v, nil
}

// policies returns the cache's, by name. They must not be changed.
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

// node returns a node as policies see it; nil: there is none.
func (v *view) node(name string) *policy.Node {
	n, ok := v.nodes[name]
	if !ok {
		return nil
	}
	out := policy.NodeOf(n)
	return &out
}

// held returns the names of those policies of which a Diagnosis holds a slot.
func held(policies []*v1alpha1.RemediationPolicy, d *v1alpha1.Diagnosis) []string {
	var names []string
	for _, p := range policies {
		if slices.ContainsFunc(p.Status.Repairs, func(r v1alpha1.Repair) bool { return r.Diagnosis == d.UID && r.EndTime == nil }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// cordoned returns the cluster with the cordons that there are now. A cache may not have
// one yet that Kernosis has just made, and whose slot it has given back since.
func (r *reconciler) cordoned(ctx context.Context, c *policy.Cluster) (*policy.Cluster, error) {
	now, err := r.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "spec.unschedulable=true"})
	if err != nil {
		return nil, fmt.Errorf("cordoned nodes: %w", err)
	}
	names := sets.New[string]()
	out := &policy.Cluster{Nodes: slices.Clone(c.Nodes)}
	for i := range now.Items {
		n := &now.Items[i]
		names.Insert(n.Name)
		if !slices.ContainsFunc(c.Nodes, func(have policy.Node) bool { return have.Name == n.Name }) {
			out.Nodes = append(out.Nodes, policy.NodeOf(n))
		}
	}
	for i := range out.Nodes {
		out.Nodes[i].Cordoned = names.Has(out.Nodes[i].Name)
	}
	return out, nil
}
