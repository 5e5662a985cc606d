package graph

import (
	"math/big"
	"slices"
)

// Bounds of a graph. A person draws some dozen nodes; these leave room for what
// programs make, and keep any status about them small.
const (
	MaxNodes = 256
	MaxEdges = 2048 // dependences are bounded by the same number

	// MaxPaths is how many paths are listed where all can't be.
	MaxPaths = 100
)

// Node is an entry of an adjacency list.
type Node struct {
	ID        int    // equal to its index in the list
	To        []int  // where its edges lead, in the order in which they are tried
	Operation string // what it runs; empty for node 0, the start
	// Dependences are the nodes whose results its operation is given. Each is on every
	// path to this node.
	Dependences []int
}

// Graph is a checked adjacency list. It is never changed, so that any number of
// goroutines may use it.
type Graph struct {
	nodes []Node
	order []int      // each node behind all that lead to it
	count []*big.Int // paths from each node to an end
	// before has, of each node, those that are on every path to it, itself among them.
	before []set
}

// Build checks an adjacency list. Its error is a [Faults], which has all that is wrong.
func Build(nodes []Node) (*Graph, error) {
	c := checker{nodes: nodes}
	c.check()
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	g := &Graph{nodes: make([]Node, len(nodes)), order: topological(nodes)}
	for i := range nodes {
		g.nodes[i] = nodes[i]
		g.nodes[i].To = slices.Clone(nodes[i].To)
		g.nodes[i].Dependences = slices.Clone(nodes[i].Dependences)
	}
	g.countPaths()
	g.before = alwaysBefore(nodes, g.order)
	c.dependencesBefore(g.before)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return g, nil
}

// Len returns the number of nodes, the start among them.
func (g *Graph) Len() int { return len(g.nodes) }

// Node returns a node by its id. Its slices must not be changed.
func (g *Graph) Node(id int) Node { return g.nodes[id] }

// AlwaysBefore returns the nodes that have run on every path before this one does, in
// the order of their ids, without the start.
func (g *Graph) AlwaysBefore(id int) []int {
	var out []int
	for i := 1; i < len(g.nodes); i++ {
		if i != id && g.before[id].has(i) {
			out = append(out, i)
		}
	}
	return out
}

// Order returns all nodes, each behind all that lead to it.
func (g *Graph) Order() []int { return slices.Clone(g.order) }

// topological returns all nodes, each behind all that lead to it. There must be no cycle.
func topological(nodes []Node) []int {
	in := make([]int, len(nodes))
	for i := range nodes {
		for _, to := range nodes[i].To {
			in[to]++
		}
	}
	order := make([]int, 1, len(nodes)) // node 0 is the only source
	for i := 0; i < len(order); i++ {
		for _, to := range nodes[order[i]].To {
			if in[to]--; in[to] == 0 {
				order = append(order, to)
			}
		}
	}
	return order
}
