//go:build race

package fleet

// agents is lower, because the race detector makes each several times as slow.
const agents = 100
