// Package observe turns observations of kubelet's own probes into outcomes for the probe.Manager.
// It sends nothing to the probed containers.
//
// It observes three things. The kernel reports failed connections of kubelet to probed pods, with
// their cause, within milliseconds. kubelet's own counts of each probe's results
// (/metrics/probes) come some seconds later and show what no socket shows: that a status was bad,
// that a program failed, or that a connection closed early does not count. kubelet's Unhealthy
// Events describe such a failure; they are requested rarely, and pod by pod.
//
// When a probe fails, it inspects the container: whether a CPU limit of the container or its pod
// throttles it, whether its processes are stopped or blocked, whether it is frozen, or has just lost
// a process to the OOM killer. Throttling is a difference over the last seconds. So containers that
// have probes and a CPU limit are sampled all the time, by reading a small file of the container and
// one of its pod. Everything else is read only on request, bounded in time and rate.
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
