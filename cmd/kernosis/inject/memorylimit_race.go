//go:build race

package inject

// DefaultMemoryLimit is larger with the race detector, which needs several times the
// program's own memory.
const DefaultMemoryLimit = 128 << 20
