package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node is what decisions need of a node.
type Node struct {
	Name         string
	Labels       map[string]string
	Ready        bool // its condition Ready is True; Unknown or none is not ready
	Cordoned     bool // spec.unschedulable
	ControlPlane bool // by label or taint
}

// InService reports whether the node takes pods.
func (n *Node) InService() bool { return n.Ready && !n.Cordoned }

// NodeOf returns what decisions need of a node. Labels are shared with it.
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

// controlPlaneKey reports whether a label or taint marks the control plane: the name in
// use since Kubernetes 1.20, the one before it, which distributions keep, and k3s' for a
// node that has etcd only.
func controlPlaneKey(key string) bool {
	switch key {
	case "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd":
		return true
	default:
		return false
	}
}

// Cluster is all nodes there are, as they are now.
type Cluster struct {
	Nodes []Node

	index map[string]int // of a cluster that does not change any more
}

// NewCluster returns a cluster for many decisions: its nodes must not change any more.
func NewCluster(nodes []Node) *Cluster {
	c := &Cluster{Nodes: nodes, index: make(map[string]int, len(nodes))}
	for i := range nodes {
		c.index[nodes[i].Name] = i
	}
	return c
}

// names returns the nodes there are.
func (c *Cluster) names() map[string]bool {
	names := make(map[string]bool, len(c.Nodes))
	for i := range c.Nodes {
		names[c.Nodes[i].Name] = true
	}
	return names
}

// Node returns the one of a name, nil where there is none.
func (c *Cluster) Node(name string) *Node {
	if c.index != nil {
		if i, ok := c.index[name]; ok {
			return &c.Nodes[i]
		}
		return nil
	}
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	return nil
}
