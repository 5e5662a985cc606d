//go:build race

package kube_test

// agents are fewer: the race detector makes each several times as slow.
const agents = 100
