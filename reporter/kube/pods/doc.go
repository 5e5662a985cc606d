// Package pods knows the pods of the own node: for a pod's UID, as the kernel's
// control groups name it, its namespace, name and labels. It remembers pods for
// some minutes after they are deleted, because a fault is often the last that is
// heard of them.
//
// It watches metadata alone, of this node alone, or is given whole lists where no API server
// is asked. It writes nothing.
//
// # Unhealthy Events
//
// [Events] asks the API server for kubelet's Events about the probes of one pod.
//
// It asks when a probe has failed and nothing else says why, pod by pod: a watch of Events
// would bring each agent those of all nodes, which is more than a big cluster's API server
// can give to all agents.
package pods
