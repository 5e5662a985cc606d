//go:build !race

package fleet

const agents = 500
