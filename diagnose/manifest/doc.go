// Package manifest reads files of the kinds of kernosis.io, without a cluster: for the
// commands that run, draw and check them.
//
// What the API server would refuse is refused here too, by the same schemas (diagnose/api/crds):
// types, bounds, defaults and their CEL rules, but for those that compare an object with
// an earlier state of it. Unknown keys, which the API server drops, are mistakes. A status
// is not read.
//
// The API server's own validation is not used: it would bring a second CEL library and 32
// modules, and make the program 4.1 MiB larger. A test holds the two against each other.
package manifest
