// Package pods tracks the pods of the own node. It maps a pod's UID, as in the names of cgroups,
// to its namespace, name and labels. It remembers pods for some minutes after they are deleted,
// because a fault is often the last event of a pod.
//
// It watches only metadata, and only of this node's pods, or is given complete lists if no API
// server is used. It writes nothing.
//
// # Unhealthy Events
//
// [Events] requests kubelet's Events about the probes of one pod from the API server.
//
// It does so when a probe has failed and nothing else explains why, pod by pod. A watch of Events would
// send the Events of all nodes to each agent, which is too much for the API server of a big cluster.
package pods
