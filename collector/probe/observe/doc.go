// Package observe turns what is seen of kubelet's own probes into outcomes for the
// probe.Manager. It sends nothing.
//
// It observes three things. Failed connections of kubelet to probed pods come from the
// kernel, with their cause, within milliseconds. kubelet's own counts of each probe's
// results (/metrics/probes) come some seconds later and show what no socket shows: that a
// status was bad, that a program failed, or that a connection closed early does not count.
// kubelet's words for such a failure are in its Unhealthy Events, which are requested rarely,
// and pod by pod.
//
// Several probes may go to the same address and port. Which of them a connection belongs to
// follows from its timeout, from which one is due, and from kubelet's counts; an outcome that
// these leave open is held for at most a second, then it is a guess, and its evidence says so.
//
// # Unhealthy Events
//
// [ReadMessage] reads what kubelet says of a failed probe in its Unhealthy Events:
// which kind of probe it was, and what sockets don't show: a status, the output of a
// program, what became of TLS.
//
// It is a pure function. The words are those of kubelet 1.31 to 1.36 and of the Go and gRPC
// libraries in it; for others it returns false. Programs of containers write into some
// of these words, so they are bounded, escaped, and never more than a hint at the cause.
//
// # Counts
//
// [KubeletMetrics] reads from kubelet itself how often each probe has failed and succeeded:
// /metrics/probes, over HTTPS, on this node. The right to it is "get nodes/metrics".
package observe
