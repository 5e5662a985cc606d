//go:build !race

package kube_test

const agents = 500
