// Package chart renders the Helm chart in the folder kernosis and generates the committed files
// that derive from it: the kustomize base and overlays in deploy/kustomize, for users without Helm,
// and the values in the chart's README. The chart's templates are the only source of manifests.
package chart
