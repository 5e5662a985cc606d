// Package cluster reads from the API server what is known about a pod or a node, with the
// rights of whoever asks: the object, its Events, the Node's conditions, Diagnoses, and the
// Lease of the node's agent. What is forbidden is named, and the rest is answered.
//
// It writes nothing.
package cluster
