package graph

import "slices"

// set is a set of node ids.
type set [MaxNodes / 64]uint64

func (s *set) has(id int) bool { return s[id/64]&(1<<(id%64)) != 0 }
func (s *set) add(id int)      { s[id/64] |= 1 << (id % 64) }

// reach returns what the start comes to without node without (-1: none is left out).
func reach(nodes []Node, without int) set {
	var seen set
	seen.add(0)
	todo := []int{0}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, to := range nodes[n].To {
			if to != without && !seen.has(to) {
				seen.add(to)
				todo = append(todo, to)
			}
		}
	}
	return seen
}

// alwaysBefore returns for each node those that are on every path to it: itself and
// what all its predecessors have in common (its dominators).
func alwaysBefore(nodes []Node, order []int) []set {
	before := make([]set, len(nodes))
	var met set
	for _, n := range order {
		before[n].add(n)
		for _, to := range nodes[n].To {
			if !met.has(to) {
				met.add(to)
				before[to] = before[n]
				continue
			}
			for w := range before[to] {
				before[to][w] &= before[n][w]
			}
		}
	}
	return before
}

// pathAround returns a shortest path from the start to a node that passes another by;
// nil: there is none.
func pathAround(nodes []Node, to, without int) []int {
	return shortest(nodes, 0, to, func(id int) bool { return id != without })
}

// shortest returns a shortest path over allowed nodes, both ends among them. From a node
// to itself it has at least one edge.
func shortest(nodes []Node, from, to int, allowed func(int) bool) []int {
	parent := make([]int, len(nodes))
	var seen set
	todo := []int{from}
	for i := 0; i < len(todo); i++ {
		for _, next := range nodes[todo[i]].To {
			if !allowed(next) || seen.has(next) {
				continue
			}
			seen.add(next)
			parent[next] = todo[i]
			if next == to {
				path := []int{to}
				for n := parent[to]; n != from; n = parent[n] {
					path = append(path, n)
				}
				path = append(path, from)
				slices.Reverse(path)
				return path
			}
			todo = append(todo, next)
		}
	}
	return nil
}
