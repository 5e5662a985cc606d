// Package pod has the operations about pods, which read from the API server or kubelet. It also
// declares those that the controller makes (evict-pod, delete-pod).
package pod
