// Package hostfs reads /proc, /sys and the cgroup filesystems of the node, below a configurable
// root: in a DaemonSet, the node's root is at /host.
//
// It imports no other package of the agent. Sources (package collector) and built-in operations
// (package diagnose/operation) use it to translate the kernel's numbers: a cgroup chain into its
// pod, an address into its symbol, a stack into what its task waits for, a dev_t into its disk and
// mount points, a boot time into wall clock time. Readers (methods of [FS]) are separate from
// parsers (pure functions on text or an [io.Reader]), so that every parser is tested and fuzzed
// without a kernel.
//
// The content is untrusted: names of cgroups, processes, mounts and devices are bounded, and pass
// [display.Safe] before they are returned for display. Container ids and pod UIDs are returned only
// if they have exactly the expected form.
//
// It must not change anything on the node, run programs, use the network, talk to Kubernetes or a
// container runtime, or log. It starts no goroutine except inside a Run that its caller waits for,
// and the timer that drops the table of [Symbols].
package hostfs
