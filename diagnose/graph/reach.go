package graph

import "slices"

// set is a set of node ids.
type set [MaxNodes / 64]uint64

func (s *set) has(id int) bool { return s[id/64]&(1<<(id%64)) != 0 }
func (s *set) add(id int)      { s[id/64] |= 1 << (id % 64) }

// reach returns the nodes that can be reached from a node; this node itself only if it is on a
// cycle.
func reach(nodes []Node, from int) set {
	var seen set
	queue := []int{from}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, to := range nodes[n].To {
			if !seen.has(to) {
				seen.add(to)
				queue = append(queue, to)
			}
		}
	}
	return seen
}

// alwaysBefore returns for each node the nodes on every path to it: itself, and what all its
// predecessors have in common (its dominators).
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

// shortest returns a shortest path that avoids the node without (-1: none), including both ends;
// nil if there is none. A path from a node to itself has at least one edge.
func shortest(nodes []Node, from, to, without int) []int {
	parent := make([]int, len(nodes))
	var seen set
	queue := []int{from}
	for i := 0; i < len(queue); i++ {
		for _, next := range nodes[queue[i]].To {
			if next == without || seen.has(next) {
				continue
			}
			seen.add(next)
			parent[next] = queue[i]
			if next == to {
				path := []int{to}
				for n := parent[to]; n != from; n = parent[n] {
					path = append(path, n)
				}
				path = append(path, from)
				slices.Reverse(path)
				return path
			}
			queue = append(queue, next)
		}
	}
	return nil
}
