// Package pods reads the pods of the node from kubelet or from a file, for nodes where there is no
// API server, or where it must not be watched. Both sources deliver complete sets. An [Asker]
// returns kubelet's complete pods on request.
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
package pods
