package runner

import (
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
)

// Nodes returns the adjacency list of an OperationSet, for [graph.Build].
func Nodes(spec *v1alpha1.OperationSetSpec) []graph.Node {
	out := make([]graph.Node, len(spec.AdjacencyList))
	for i := range out {
		n := &spec.AdjacencyList[i]
		out[i] = graph.Node{ID: int(n.ID), To: ints(n.To), Operation: n.Operation, Dependences: ints(n.Dependences)}
	}
	return out
}

func ints(in []int32) []int {
	var out []int
	for _, v := range in {
		out = append(out, int(v))
	}
	return out
}
