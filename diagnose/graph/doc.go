// Package graph has the directed acyclic graph of a diagnosis and the state machine
// that says which of its nodes runs next.
//
// Node 0 is the start and runs nothing. A path leads from it along the edges, in the
// order in which they are written, to a node without edges; there are often far too
// many to list ([Graph.Count]). A diagnosis tries the paths in that order until one
// succeeds. [Run] gives the same outcome in at most one run a node, because a node's
// outcome depends on nothing but the parameters and the nodes it declares as
// dependences, and [Build] takes only dependences that have run on every path.
//
// The package knows nothing of operations but their names, does no I/O, and imports
// nothing of ours.
package graph
