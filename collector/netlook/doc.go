// Package netlook inspects the network namespaces of the node: what listens there and how full its
// queue is, where a packet would go, whether the next hop is reachable.
//
// It is a leaf: sources (package collector) use it at the moment of a failure, and operations
// (package diagnose/operation) later and more thoroughly. A [View] queries one namespace over
// netlink, a [Namespaces] finds namespaces, and [Within] runs a function in one.
//
// It must not change anything in a namespace or start processes. Entering another process's
// namespace requires CAP_SYS_ADMIN.
package netlook
