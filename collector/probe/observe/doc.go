// Package observe turns observations of kubelet's own probes into outcomes for the probe.Manager.
// It sends nothing to the probed containers.
//
// It observes three things. The kernel reports failed connections of kubelet to probed pods, with
// their cause, within milliseconds. kubelet's own counts of each probe's results (/metrics/probes)
// come some seconds later and show what sockets don't: a bad status, a failed program, or a
// connection that closed early but is no failure. kubelet's Unhealthy Events describe such a
// failure; the package requests them rarely, and pod by pod.
//
// When a probe fails, it inspects the container: whether a CPU limit of the container or its pod
// throttles it, whether its processes are stopped or blocked, whether it is frozen, or has just lost
// a process to the OOM killer. Throttling is measured over the last seconds. So the package
// continuously samples containers with probes and a CPU limit, by reading a small file of the
// container and one of its pod. Everything else is read only on request, bounded in time and rate.
//
// Several probes may go to the same address and port. To find out which of them a connection
// belongs to, the package uses its timeout, which probe is due, and kubelet's counts. If these don't
// decide, the outcome is held for at most a second. After that the package guesses, and says so in
// the evidence.
//
// # Unhealthy Events
//
// [ReadMessage] parses the message of kubelet's Unhealthy Events: what sockets don't show, such as a
// status, the output of a program or a TLS error.
//
// It is a pure function. It recognizes the messages of kubelet 1.31 to 1.36 and of its Go and gRPC
// libraries; for others it returns false. Programs in containers control parts of these messages, so
// they are bounded, escaped, and never more than a hint at the cause.
//
// # Counts
//
// [KubeletMetrics] reads from kubelet how often each probe has failed and succeeded:
// /metrics/probes, over HTTPS, on this node. It needs the permission "get nodes/metrics".
package observe
