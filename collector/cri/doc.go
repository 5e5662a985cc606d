// Package cri asks the node's container runtime over its CRI socket: how it is, and to run
// a command in a container.
//
// It is a leaf. What the answers mean is for those who ask: operations (diagnose/operation)
// and probes (collector/probe/active and service). Each call makes a connection of its own.
package cri
