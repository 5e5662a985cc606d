// Package memory has the operations about the memory of control groups, pods and the node.
package memory
