// Package cluster reads from the API server what is known about a pod or a node, with the
// permissions of the user: the object, its Events, the Node's conditions, Diagnoses, and the Lease
// of the node's agent. It reports what is forbidden, and reads the rest.
//
// It writes nothing.
package cluster
