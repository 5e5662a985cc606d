// Package kubelet reads from kubelet itself how often each probe has failed and succeeded:
// /metrics/probes, over HTTPS, on this node. The right to it is "get nodes/metrics".
package kubelet
