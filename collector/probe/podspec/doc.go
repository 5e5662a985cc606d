// Package podspec converts a pod of the API to the form that package probe uses: its probes, with
// the API server's defaults filled in and named ports resolved, and the state of its containers.
//
// It is pure and bounded. A part that can't be used is left out and reported as an error with its
// place; the rest of the pod is still returned.
//
//	pod.go        names, addresses, phase
//	container.go  containers and sidecars, their state, whether they are restarted
//	probe.go      one probe: handler, port, path, times, thresholds
//	error.go      where in the pod something is wrong
//
// # Static pods
//
// [Hash] and [Precedes] determine the UIDs that kubelet uses for pods. For a static pod, which it
// runs from a file, that is the hash of its manifest, not the UID of its mirror pod in the API.
package podspec
