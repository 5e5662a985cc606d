// Package observe turns what is seen of kubelet's own probes into outcomes for the
// probe.Manager. It sends nothing.
//
// Three things are seen. Failed connections of kubelet to what pods are probed at come
// from the kernel, with their cause, within milliseconds. kubelet's own counts of each
// probe's results (/metrics/probes) come some seconds later and tell what no socket shows:
// that a status was bad, a program failed, or that a connection which was closed early
// does not count. kubelet's words for such a failure are in its Unhealthy Events, which
// are asked for seldom, and pod by pod.
//
// Several probes may go to the same address and port. Which one a connection was of is reported
// by its timeout, by which one is due, and by kubelet's counts; an outcome that these leave
// open is held for at most a second, then it is a guess, and its evidence says so.
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
