// Package local reads from a node's journal what is known about one of its pods, or about the node
// itself. An agent may be writing the journal at the same time.
//
// It decides nothing: the journal has the engine's conclusions.
package local
