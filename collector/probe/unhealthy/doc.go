// Package unhealthy reads what kubelet says of a failed probe in its Unhealthy Events:
// which kind of probe it was, and what sockets don't show: a status, the output of a
// program, what became of TLS.
//
// It is pure. The words are those of kubelet 1.31 to 1.36 and of the Go and gRPC
// libraries in it; what it can't read it says so. Programs of containers write into some
// of these words, so they are bounded, escaped, and never more than a hint at the cause.
package unhealthy
