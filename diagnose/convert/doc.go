// Package convert turns KubeDiag's manifests (diagnosis.kubediag.org/v1) into those of
// kernosis.io, and reports what it can't turn, and what means something else now.
//
// What it writes is validated against the schemas of kernosis.io; what they refuse is left
// out and reported. It knows KubeDiag's forms only, and no cluster.
package convert
