package graph

import "slices"

// components returns the groups of nodes that lead to one another (strongly connected
// components, by Tarjan), each sorted, in the order of their first nodes.
func components(nodes []Node) [][]int {
	t := tarjan{nodes: nodes, index: make([]int, len(nodes)), low: make([]int, len(nodes))}
	for i := range nodes {
		if t.index[i] == 0 {
			t.visit(i)
		}
	}
	slices.SortFunc(t.groups, func(a, b []int) int { return a[0] - b[0] })
	return t.groups
}

type tarjan struct {
	nodes      []Node
	index, low []int // index: when a node was met, from 1
	last       int
	stack      []int
	on         set
	groups     [][]int
}

// visit goes at most MaxNodes deep.
func (t *tarjan) visit(n int) {
	t.last++
	t.index[n], t.low[n] = t.last, t.last
	t.stack = append(t.stack, n)
	t.on.add(n)
	for _, to := range t.nodes[n].To {
		if t.index[to] == 0 {
			t.visit(to)
			t.low[n] = min(t.low[n], t.low[to])
		} else if t.on.has(to) {
			t.low[n] = min(t.low[n], t.index[to])
		}
	}
	if t.low[n] != t.index[n] {
		return
	}
	at := slices.Index(t.stack, n)
	group := slices.Clone(t.stack[at:])
	t.stack = t.stack[:at]
	for _, id := range group {
		t.on[id/64] &^= 1 << (id % 64)
	}
	slices.Sort(group)
	t.groups = append(t.groups, group)
}

// cycleThrough returns a shortest cycle through the first node of a group, that node at
// both ends; nil: the group is one node without an edge to itself.
func cycleThrough(nodes []Node, group []int) []int {
	if len(group) == 1 && !slices.Contains(nodes[group[0]].To, group[0]) {
		return nil
	}
	var in set
	for _, id := range group {
		in.add(id)
	}
	return shortest(nodes, group[0], group[0], func(id int) bool { return in.has(id) })
}
