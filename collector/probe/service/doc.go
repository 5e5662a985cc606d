// Package service probes services of the node: kubelet, the container runtime, kube-proxy,
// the name service, the API server, and those that the configuration names.
//
// A [Service] says what is probed and by which thresholds; [Known] has the usual ones. A
// [Runner] gives them to a probe.Manager, which counts, and reports what comes of it as
// events: Probe with each failure and how many in a row it is, ProbeRecovered when a
// service counts as healthy again, and Source with the stem "service/<name>", which is up
// while it is known how the service is. Conditions are made of these by rules.
//
// [Find] reports which of the known services a node has: one that is not there must not be
// reported as failed.
package service
