// Package node has the operations about the node as a whole: kernel, systemd units, container
// runtime. It also declares the operations on the Node that the controller makes (cordon, taint).
package node
