package graph

import (
	"fmt"
	"math/big"
	"slices"
)

// Bounds of a graph. People draw some dozen nodes; the bounds leave room for generated graphs, and
// keep statuses small.
const (
	MaxNodes = 256
	MaxEdges = 2048 // also the bound of dependences

	// MaxPaths is how many paths are listed if there are more.
	MaxPaths = 100
)

// Node is an entry of an adjacency list.
type Node struct {
	ID        int    // equal to its index in the list
	To        []int  // next nodes, in the order in which they are tried
	Operation string // what it runs; empty for node 0, the start
	// Dependences are the nodes whose results the operation gets. Each is on every path to this
	// node.
	Dependences []int
}

// Graph is a validated adjacency list. It is immutable, so that any number of goroutines may use
// it.
type Graph struct {
	nodes []Node
	order []int      // topological: each node after all of its predecessors
	count []*big.Int // paths from each node to an end
	// before has for each node the nodes on every path to it, including itself.
	before []set
}

// Build validates an adjacency list. Its error is a [Faults] with all mistakes.
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

// Require returns the graph with the dependences that operations declare themselves. needs returns
// the operations whose results an operation requires. Each node then also depends on the nodes of
// these operations that always run before it. If there is no such node, the error is a [Faults].
func (g *Graph) Require(needs func(operation string) []string) (*Graph, error) {
	nodes := make([]Node, len(g.nodes))
	var faults Faults
	for id := range nodes {
		nodes[id] = g.nodes[id]
		if id == 0 {
			continue
		}
		before := g.AlwaysBefore(id)
		nodes[id].Dependences = slices.Clone(g.nodes[id].Dependences)
		for _, name := range needs(g.nodes[id].Operation) {
			found := false
			for _, b := range before {
				if g.nodes[b].Operation != name {
					continue
				}
				found = true
				if !slices.Contains(nodes[id].Dependences, b) {
					nodes[id].Dependences = append(nodes[id].Dependences, b)
				}
			}
			if !found {
				faults = append(faults, &Fault{
					Reason: DependenceNotOnAPath, Index: id, Field: "operation",
					Message: fmt.Sprintf("node %d: operation %.80q depends on operation %.80q, which does not run on every path to the node", id, g.nodes[id].Operation, name),
				})
			}
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return Build(nodes)
}

// Len returns the number of nodes, including the start.
func (g *Graph) Len() int { return len(g.nodes) }

// Node returns a node by its id. Its slices must not be changed.
func (g *Graph) Node(id int) Node { return g.nodes[id] }

// AlwaysBefore returns the nodes that run before this one on every path, sorted by id, without the
// start.
func (g *Graph) AlwaysBefore(id int) []int {
	var out []int
	for i := 1; i < len(g.nodes); i++ {
		if i != id && g.before[id].has(i) {
			out = append(out, i)
		}
	}
	return out
}

// Order returns all nodes, each after all of its predecessors.
func (g *Graph) Order() []int { return slices.Clone(g.order) }

// topological returns all nodes, each after all of its predecessors. There must be no cycle.
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
