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
// Several probes may go to the same address and port. Which one a connection was of is told
// by its timeout, by which one is due, and by kubelet's counts; an outcome that these leave
// open is held for at most a second, then it is a guess, and its evidence says so.
package observe
