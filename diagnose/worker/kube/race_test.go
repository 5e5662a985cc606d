//go:build race

package kube

// underRace: the race detector makes objects larger.
const underRace = true
