//go:build race

package inject

// DefaultMemoryLimit is more with the race detector, which keeps several times the
// memory that the program itself has.
const DefaultMemoryLimit = 128 << 20
