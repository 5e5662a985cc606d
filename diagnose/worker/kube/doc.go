// Package kube implements the [worker.Store] of a node's agent with the API server.
//
//	operations, operationsets, triggers ──► Objects, and a file of what was last known
//	diagnoses with spec.nodeName=NODE  ───► Handler
//	Create, Write ─────────────────────────► API server
//
// A client-go reflector watches each kind. The Store keeps only the fields that a run needs: no
// managed fields, no status of the objects that a run uses, no values of ended Diagnoses.
//
// While the API server is unreachable, the Store uses the last known objects: from this process,
// or from the file of the previous one. If the API server reports that there are none, the Store
// trusts that.
//
// Diagnoses are delivered only once Operations and OperationSets are known: one created together
// with its OperationSet must not fail because that is missing.
package kube
