// Package install installs the CRDs of kernosis.io in a cluster, and removes everything that
// Kernosis has left in a cluster.
//
// [ApplyKinds] and [DeleteKinds] handle the CRDs of diagnose/api/crds. [Uninstall] stops agents and
// controller and then removes their changes to other objects: conditions, cordons and taints of
// Nodes. It also deletes objects that no manifest contains: Leases, and the state of Triggers.
//
// All functions can be called again after an interruption; they then do the remaining work. They
// retry requests that fail for a temporary reason until the context ends.
package install
