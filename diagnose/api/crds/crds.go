// Package crds holds the CustomResourceDefinitions of kernosis.io, which "make generate"
// makes from the types in diagnose/api.
package crds

import "embed"

// Files has one file for each kind.
//
//go:embed *.yaml
var Files embed.FS
