// Package kustomize holds the manifests for an installation without Helm, which "make
// generate-deploy" renders from the chart (deploy/chart): a base and its overlays.
package kustomize

import "embed"

// Files has the base, and the overlay of the hardened profile.
//
//go:embed base/*.yaml hardened/*.yaml
var Files embed.FS
