// Package sets has the OperationSets that are part of Kernosis, with the Operations that they need
// besides built-ins, and the Triggers that start them: one file each, named after its set. They are
// manifests: read them with package manifest, run them without a cluster, or apply them to one.
package sets

import "embed"

// Files has the manifests.
//
//go:embed *.yaml
var Files embed.FS

// Description is the annotation of an OperationSet that describes what it finds out.
const Description = "kernosis.io/description"
