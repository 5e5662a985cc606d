// Package chart renders the Helm chart in the folder kernosis, and makes what is committed
// of it for those who have no Helm: the kustomize base and its overlays in
// deploy/kustomize. The chart's templates are the only source of manifests.
package chart
