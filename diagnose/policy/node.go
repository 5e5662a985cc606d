package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node has the fields of a node that decisions depend on.
type Node struct {
	Name         string
	Labels       map[string]string
	Ready        bool // its condition Ready is True; Unknown or missing is not ready
	Cordoned     bool // spec.unschedulable
	ControlPlane bool // by label or taint
}

// InService reports whether the node accepts pods.
func (n *Node) InService() bool { return n.Ready && !n.Cordoned }

// NodeOf converts a node. The result shares its Labels.
func NodeOf(n *corev1.Node) Node {
	out := Node{Name: n.Name, Labels: n.Labels, Cordoned: n.Spec.Unschedulable}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		out.Ready = out.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	for key := range n.Labels {
		out.ControlPlane = out.ControlPlane || controlPlaneKey(key)
	}
	out.ControlPlane = out.ControlPlane || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return controlPlaneKey(t.Key) })
	return out
}

// controlPlaneKey reports whether a label or taint marks the control plane: by the name used since
// Kubernetes 1.20, by the one before it, which distributions keep, or by k3s' name for etcd-only
// nodes.
func controlPlaneKey(key string) bool {
	switch key {
	case "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd":
		return true
	default:
		return false
	}
}

// Cluster is all current nodes. Create one with [NewCluster].
type Cluster struct {
	Nodes []Node

	index map[string]int // by name
}

// NewCluster returns a cluster. The nodes must no longer change.
func NewCluster(nodes []Node) *Cluster {
	c := &Cluster{Nodes: nodes, index: make(map[string]int, len(nodes))}
	for i := range nodes {
		c.index[nodes[i].Name] = i
	}
	return c
}

// Node returns the node of a name, or nil if there is none.
func (c *Cluster) Node(name string) *Node {
	if i, ok := c.index[name]; ok {
		return &c.Nodes[i]
	}
	return nil
}
