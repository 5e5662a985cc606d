// Package local reads from a node's journal what is known about a pod of it, or about the
// node itself. The journal may be live.
//
// It must not decide anything: what the engine concluded is in the journal.
package local
