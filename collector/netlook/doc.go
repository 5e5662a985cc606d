// Package netlook looks into the network namespaces of the node: what listens there and
// how full its queue is, where a packet would go, whether the next hop is there.
//
// It is a leaf: sources (package collector) ask it at the moment of a failure, and
// operations (package diagnose/operation) later and more thoroughly. A [View] asks one
// namespace over netlink, a [Namespaces] finds namespaces, and [Within] has a function
// run in one.
//
// It must not change anything in a namespace, nor start processes. Entering the
// namespace of others needs CAP_SYS_ADMIN.
package netlook
