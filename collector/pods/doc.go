// Package pods finds the pods of the node. Their source is the API server ([Watch]), kubelet
// ([Kubelet], [Asker]) or a file ([File]); the last two need no API server and deliver complete sets
// ([Listed]). It writes nothing.
//
// All map a pod's UID, as in the names of cgroups, to its namespace, name and labels, and remember pods
// for some minutes after they are deleted, because a fault is often the last event of a pod. A Watch
// receives only metadata, and only of this node's pods.
//
// [Convert] converts a pod of the API to the form that package probe uses: its probes, with the API
// server's defaults filled in and named ports resolved, and the state of its containers. It is pure
// and bounded. A part that can't be used is left out and reported as an error with its place; the
// rest of the pod is still returned.
//
// # Static pods
//
// [Hash] and [Precedes] determine the UIDs that kubelet uses for pods. For a static pod, which it
// runs from a file, that is the hash of its manifest, not the UID of its mirror pod in the API.
//
// # Unhealthy Events
//
// [Events] requests kubelet's Events about the probes of one pod from the API server. It requests them
// pod by pod, when a probe has failed and nothing else explains why. A watch of Events would send the
// Events of all nodes to each agent, which is too much for the API server of a big cluster.
package pods
