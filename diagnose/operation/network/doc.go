// Package network has the operations about the network as a pod sees it: links, routes,
// neighbours, sockets, connection tracking, packets, and a probe made once more.
//
// Each looks into the network namespace of its target ([place]); what the kernel counts is
// compared over a window.
package network
