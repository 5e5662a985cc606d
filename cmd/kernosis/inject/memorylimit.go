//go:build !race

package inject

// DefaultMemoryLimit is the limit of the cgroup that runs out of memory, in bytes. The
// cgroup's main process, which is this program, has to fit into it.
const DefaultMemoryLimit = 32 << 20
