// Package pod has the operations about pods, read from the API server or kubelet, and the
// declarations of those that the controller makes (evict-pod, delete-pod).
package pod
