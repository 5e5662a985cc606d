package graph

import "fmt"

// checker collects the mistakes in an adjacency list. Later checks rely on earlier ones, and are
// skipped if those found mistakes.
type checker struct {
	nodes  []Node
	faults Faults
}

func (c *checker) fault(reason string, index int, field, format string, args ...any) {
	c.faults = append(c.faults, &Fault{Reason: reason, Index: index, Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) check() {
	if !c.size() {
		return
	}
	edgesLead := true
	for i := range c.nodes {
		c.node(i)
		edgesLead = c.edges(i) && edgesLead
		c.dependences(i)
	}
	if !edgesLead {
		return // nothing can be said about reachability
	}
	c.cycles()
	c.sources()
}

// size checks the bounds that the other checks rely on.
func (c *checker) size() bool {
	n := len(c.nodes)
	if n < 2 {
		c.fault(Empty, -1, "", "the list has %d nodes; want a start, node 0, and at least one node that it leads to", n)
		return false
	}
	edges, dependences := 0, 0
	for i := range c.nodes {
		edges += len(c.nodes[i].To)
		dependences += len(c.nodes[i].Dependences)
	}
	for _, b := range []struct {
		what    string
		n, most int
	}{{"nodes", n, MaxNodes}, {"edges", edges, MaxEdges}, {"dependences", dependences, MaxEdges}} {
		if b.n > b.most {
			c.fault(TooLarge, -1, "", "the list has %d %s, at most %d", b.n, b.what, b.most)
		}
	}
	return len(c.faults) == 0
}

func (c *checker) node(i int) {
	n := &c.nodes[i]
	if n.ID != i {
		c.fault(WrongID, i, "id", "node %d: id is %d; want the node's position in the list, counted from 0", i, n.ID)
	}
	switch {
	case i == 0 && n.Operation != "":
		c.fault(StartHasOperation, 0, "operation", "node 0: operation is %.80q; node 0 is the start and must have none", n.Operation)
	case i > 0 && n.Operation == "":
		c.fault(NoOperation, i, "operation", "node %d: operation is missing; only the start, node 0, has none", i)
	}
}

func (c *checker) edges(i int) bool {
	var seen set
	lead := true
	for _, to := range c.nodes[i].To {
		switch {
		case to < 0 || to >= len(c.nodes):
			lead = false
			c.fault(UnknownNode, i, "to", "node %d: to: there is no node %d; the last is %d", i, to, len(c.nodes)-1)
		case seen.has(to):
			c.fault(DoubledEdge, i, "to", "node %d: to: node %d is listed twice", i, to)
		default:
			seen.add(to)
		}
	}
	return lead
}

func (c *checker) dependences(i int) {
	var seen set
	if i == 0 && len(c.nodes[0].Dependences) > 0 {
		c.fault(UnknownDependence, 0, "dependences", "node 0: dependences: the start runs nothing and depends on nothing")
		return
	}
	for _, d := range c.nodes[i].Dependences {
		switch {
		case d < 0 || d >= len(c.nodes):
			c.fault(UnknownDependence, i, "dependences", "node %d: dependences: there is no node %d; the last is %d", i, d, len(c.nodes)-1)
		case d == 0:
			c.fault(UnknownDependence, i, "dependences", "node %d: dependences: node 0 is the start and has no results", i)
		case d == i:
			c.fault(UnknownDependence, i, "dependences", "node %d: dependences: it depends on itself", i)
		case seen.has(d):
			c.fault(DoubledDependence, i, "dependences", "node %d: dependences: node %d is listed twice", i, d)
		default:
			seen.add(d)
		}
	}
}

// cycles reports one cycle of each strongly connected group of nodes: a shortest one through the
// group's first node.
func (c *checker) cycles() {
	reached := make([]set, len(c.nodes))
	for i := range c.nodes {
		reached[i] = reach(c.nodes, i)
		first := reached[i].has(i)
		for other := range i {
			first = first && !(reached[i].has(other) && reached[other].has(i))
		}
		if first {
			cycle := shortest(c.nodes, i, i, -1)
			c.fault(Cycle, i, "to", "nodes %s form a cycle", join(cycle, " → "))
		}
	}
}

// sources reports nodes without incoming edges, and other nodes that can't be reached from the
// start.
func (c *checker) sources() {
	var in set
	for i := range c.nodes {
		for _, to := range c.nodes[i].To {
			in.add(to)
		}
	}
	reached := reach(c.nodes, 0)
	var cut []int
	for i := 1; i < len(c.nodes); i++ {
		switch {
		case !in.has(i):
			c.fault(SecondSource, i, "", "node %d: no edge leads to it; only the start, node 0, may have none", i)
		case !reached.has(i):
			cut = append(cut, i)
		}
	}
	if len(cut) > 0 {
		c.fault(Unreachable, cut[0], "", "%s: no path from the start leads there", named(cut))
	}
}

// dependencesBefore reports dependences that some path to their node bypasses: there they would not
// have run, and the node's outcome would depend on the path.
func (c *checker) dependencesBefore(before []set) {
	for i := range c.nodes {
		for _, d := range c.nodes[i].Dependences {
			if before[i].has(d) {
				continue
			}
			by := shortest(c.nodes, 0, i, d)
			c.fault(DependenceNotOnAPath, i, "dependences", "node %d: dependences: node %d does not run on the path %s; a dependence must be on every path", i, d, join(by, " → "))
		}
	}
}
