// Package kube is the [worker.Store] of a node's agent over the API server.
//
//	operations, operationsets, triggers ──► Objects, and a file of what was last known
//	diagnoses with spec.nodeName=NODE  ───► Handler
//	Create, Write ─────────────────────────► API server
//
// Each kind is watched by a client-go reflector, and what is kept of it is what a run
// needs: no managed fields, no status of what a run is made of, no values of Diagnoses
// that have ended.
//
// While the API server is away the objects are those that were known last, of this
// process or of the one before it, by the file. An API server that says that there are
// none is believed.
//
// Diagnoses are reported only once operations and sets are known: one that was made
// together with its OperationSet must not fail for the want of it.
package kube
