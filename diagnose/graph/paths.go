package graph

import (
	"math/big"
	"slices"
)

// Count returns the exact number of paths.
func (g *Graph) Count() *big.Int { return new(big.Int).Set(g.count[0]) }

// Paths returns at most this many paths, the first in the order in which they are tried. It leaves
// out the start, which is on all of them.
func (g *Graph) Paths(most int) [][]int { return g.pathsFrom(nil, 0, most) }

// countPaths counts in reverse topological order: a node has as many paths as its next nodes
// together.
func (g *Graph) countPaths() {
	g.count = make([]*big.Int, len(g.nodes))
	for _, n := range slices.Backward(g.order) {
		sum := new(big.Int)
		for _, to := range g.nodes[n].To {
			sum.Add(sum, g.count[to])
		}
		if len(g.nodes[n].To) == 0 {
			sum.SetInt64(1)
		}
		g.count[n] = sum
	}
}

// pathsFrom returns the first paths that begin with prefix and continue with node n; n is left out
// if it is the start. Each branch ends in a path, so that the cost is proportional to the result.
func (g *Graph) pathsFrom(prefix []int, n, most int) [][]int {
	var out [][]int
	var walk func(path []int, n int)
	walk = func(path []int, n int) {
		if len(out) >= most {
			return
		}
		if n != 0 {
			path = append(path, n)
		}
		if len(g.nodes[n].To) == 0 {
			out = append(out, slices.Clone(path))
		}
		for _, to := range g.nodes[n].To {
			walk(path, to)
		}
	}
	walk(slices.Clone(prefix), n)
	return out
}
