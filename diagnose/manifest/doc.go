// Package manifest reads manifests of kernosis.io without a cluster, for the commands that run,
// draw and check them. It also has the shipped OperationSets.
//
// It rejects everything that the API server would reject, by the same schemas (diagnose/api/crds):
// types, bounds, defaults and CEL rules, except rules that compare an object with its previous
// state. Unknown keys, which the API server drops, are mistakes. A status is ignored.
//
// The API server's own validation is not used: it would bring a second CEL library and 32 modules,
// and make the program 4.1 MiB larger. A test compares the two.
package manifest
