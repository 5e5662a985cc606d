// Package cri calls the node's container runtime over its CRI socket: for its health, and to run a
// command in a container.
//
// It is a leaf. Its users interpret the answers: operations (diagnose/operation) and probes
// (collector/probe/active and service). Each call opens a connection of its own.
package cri
