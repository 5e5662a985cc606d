// Package convert converts KubeDiag's manifests (diagnosis.kubediag.org/v1) to those of
// kernosis.io, and reports what can't be converted and what changes its meaning.
//
// The output is validated against the schemas of kernosis.io; rejected parts are left out and
// reported. The package needs no cluster.
package convert
