//go:build race

package fleet

// agents are fewer: the race detector makes each several times as slow.
const agents = 100
