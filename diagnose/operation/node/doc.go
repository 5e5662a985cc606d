// Package node has the operations about the node as a whole: kernel, systemd units, container
// runtime. It also declares the operations on the Node that the controller makes (cordon, taint).
package node

import "github.com/kernosis/kernosis/diagnose/operation"

// host is the node.
type host operation.Host
