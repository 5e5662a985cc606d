// Package active makes probes: over the network as kubelet does (package netprobe), programs
// of the node, and commands in containers where the container runtime runs them. What comes
// of one is an outcome with a verdict: how far it got, which error ended it, what the kernel
// knows of its connection, and, where these leave a question open, what a look at the other
// end shows (package netlook): a full accept queue, a route, a neighbour.
//
// A probe that could not be made is an error and no failure: what is probed may be well.
//
// The package knows nothing of thresholds, and nothing of which probes there are: package
// probe calls it for pods, package service for services of the node.
package active
