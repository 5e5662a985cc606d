// Package node has the operations about the node as a whole: kernel, systemd units, the
// container runtime; and the declarations of those that the controller makes (cordon, taint).
package node
