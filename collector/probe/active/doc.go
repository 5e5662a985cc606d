// Package active makes probes: over the network as kubelet does (package netprobe), by running
// programs on the node, and by running commands in containers through the container runtime. Each
// probe returns an outcome with a verdict. The verdict is based on how far the probe got, which
// error ended it, and what the kernel knows of its connection. If these leave the cause open,
// package netlook inspects the other end for a full accept queue, a missing route or a dead
// neighbour.
//
// A probe that could not be made is an error, not a failure: its target may be healthy.
//
// The package handles single probes, without thresholds: package probe calls it for pods, package
// service for services of the node.
package active
