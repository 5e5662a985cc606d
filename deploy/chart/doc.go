// Package chart renders the Helm chart in the folder kernosis, and makes what is committed of it:
// the kustomize base and its overlays in deploy/kustomize, for those who have no Helm, and the
// values in the chart's README. The chart's templates are the only source of manifests.
package chart
