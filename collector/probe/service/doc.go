// Package service probes services of the node: kubelet, the container runtime, kube-proxy, DNS,
// the API server, and services from the configuration.
//
// A [Service] defines the probe and its thresholds; [Known] returns the usual services. A
// [Runner] passes them to a probe.Manager, which counts outcomes, and reports events: Probe for
// each failure, with the number of failures in a row; ProbeRecovered when a service counts as
// healthy again; and Source with the stem "service/<name>", which is up while the state of the
// service is known. Rules turn these into conditions.
//
// [Find] returns which of the known services a node has: a service that is not installed must not
// be reported as failed.
package service
