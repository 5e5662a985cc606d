// Package resolve turns an OperationSet and the objects that its nodes name into something that can
// run: a graph and a step for each node.
//
// A name refers to an Operation, or else to a built-in, which then has no fixed parameters. All
// mistakes are reported at once, each with its object and field. Nothing runs and no server is
// contacted: whether a server exists shows when its operation runs.
package resolve
