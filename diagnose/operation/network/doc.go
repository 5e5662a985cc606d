// Package network has the operations that inspect the network from a pod's point of view: links,
// routes, neighbours, sockets, connection tracking, packets, and a repeated probe.
//
// Each inspects the network namespace of its target ([place]), and compares kernel counters over a
// window.
package network
