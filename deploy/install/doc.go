// Package install installs the CRDs of kernosis.io in a cluster and removes from a cluster what
// Kernosis has left in it.
//
// [ApplyKinds] and [DeleteKinds] handle the CRDs of diagnose/api/crds. [Uninstall] stops agents and
// controller and then removes what they wrote to objects of others: conditions, cordons and taints
// of Nodes. It also deletes objects that are in no manifest: Leases, and the state of Triggers.
//
// All functions can be called again after an interruption and then do the rest. They retry requests
// that fail for a temporary reason until the context ends.
package install
