// Package graph implements the directed acyclic graph of a diagnosis, and the state machine that
// selects the node to run next.
//
// Node 0 is the start and runs nothing. A path leads from it along edges to a node without edges.
// Edges are tried in the order in which they are listed; there are often far too many paths to list
// ([Graph.Count]). A diagnosis tries the paths in order until one succeeds. [Run] has the same
// outcome but runs each node at most once. That is possible because a node's outcome depends only
// on the parameters and the nodes it declares as dependences, and [Build] accepts only dependences
// that run on every path to the node.
//
// The package knows only the names of operations, does no I/O, and imports no other package of
// ours.
package graph
