// Package resolve makes what can be run out of what people write: an OperationSet and the
// objects that its nodes name become a graph and a step for each node.
//
// A name is that of an Operation, else of a built-in, which then has no fixed parameters.
// All mistakes are reported at once, each with the object and field it is in. Nothing is run
// and nothing is asked: whether a server is there shows when its operation runs.
package resolve
