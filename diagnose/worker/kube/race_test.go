//go:build race

package kube

// underRace: the detector makes objects larger.
const underRace = true
