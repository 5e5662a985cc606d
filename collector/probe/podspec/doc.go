// Package podspec turns a pod of the API into what package probe keeps of it: its
// probes with the API server's defaults filled in and named ports resolved, and what its
// containers do now.
//
// It is pure and bounded. What can't be used is an error with its place, and left out:
// the rest of the pod is returned all the same.
//
//	pod.go        names, addresses, phase
//	container.go  containers and sidecars, their state, whether they are restarted
//	probe.go      one probe: handler, port, path, times, thresholds
//	error.go      where in the pod something is wrong
//
// # Static pods
//
// [Hash] and [Precedes] say by which UIDs kubelet names pods: those that it runs from files, static
// pods, go by the hash of their manifest, and not by the UID of the object that mirrors them in
// the API.
package podspec
