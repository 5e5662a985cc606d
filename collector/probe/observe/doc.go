// Package observe turns observations of kubelet's own probes into outcomes for the probe.Manager.
// It sends nothing to the probed containers.
//
// It observes three things. The kernel reports failed connections of kubelet to probed pods, with
// their cause, within milliseconds. kubelet's own counts of each probe's results
// (/metrics/probes) come some seconds later and show what no socket shows: that a status was bad,
// that a program failed, or that a connection closed early does not count. kubelet's Unhealthy
// Events describe such a failure; they are requested rarely, and pod by pod.
//
// Several probes may go to the same address and port. To find out which of them a connection
// belongs to, the package uses its timeout, which probe is due, and kubelet's counts. An outcome
// that these leave open is held for at most a second. Then it is a guess, and its evidence says
// so.
//
// # Unhealthy Events
//
// [ReadMessage] parses the message of kubelet's Unhealthy Events: what sockets don't show, such as a
// status, the output of a program or a TLS error.
//
// It is a pure function. It knows the messages of kubelet 1.31 to 1.36 and of the Go and gRPC
// libraries in it; for others it returns false. Programs in containers control parts of these
// messages, so they are bounded, escaped, and never more than a hint at the cause.
//
// # Counts
//
// [KubeletMetrics] reads from kubelet how often each probe has failed and succeeded:
// /metrics/probes, over HTTPS, on this node. It needs the permission "get nodes/metrics".
package observe
