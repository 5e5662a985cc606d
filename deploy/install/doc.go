// Package install makes the kinds of kernosis.io known to a cluster, and takes out of a
// cluster what Kernosis has left in it.
//
// [ApplyKinds] and [DeleteKinds] are for the definitions of diagnose/api/crds. [Uninstall]
// takes back, in an order in which nobody writes it anew, what agents and controller
// have written to objects that are not theirs: conditions, cordons and taints of Nodes.
// What is in nobody's manifests goes too: Leases, and what Triggers remember.
//
// All may be called again after an interruption, and do what is left to do. A request
// that failed for a passing reason is made again until the context ends.
package install
