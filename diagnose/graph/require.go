package graph

import (
	"fmt"
	"slices"
)

// Require returns the graph with the dependences that operations declare themselves. Each node also
// depends on all nodes that always run before it and whose operation is one that needs returns for
// its own. If there is no such node, the error is a [Faults].
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
					Reason: DependenceNotOnAPath, Index: id, Field: "operation", Nodes: []int{id},
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
