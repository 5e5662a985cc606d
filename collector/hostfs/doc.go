// Package hostfs reads what /proc, /sys and the cgroup filesystems of the node
// say, below a root that may be elsewhere: a DaemonSet sees the node at /host.
//
// It is a leaf: sources (package collector) and built-in operations (package
// diagnose/operation) use it to give names to what the kernel reports as
// numbers: a cgroup chain its pod, an address its symbol, a dev_t its disk and
// mount points, a boot time its wall clock time. Whatever reads (methods of
// [FS]) is apart from whatever parses (pure functions on text or an
// [io.Reader]), so that every parser is tested and fuzzed without a kernel.
//
// What is read here is written by others: names of cgroups, processes, mounts
// and devices are bounded, and pass [display.Safe] before they are returned
// as something to show. Container ids and pod UIDs are returned only when they
// have exactly the form of one.
//
// It must not change anything on the node, run programs, use the network, talk
// to Kubernetes or a container runtime, nor log; it starts no goroutine except
// inside a Run that its caller waits for, and that of the timer by which [Symbols]
// drops its table.
package hostfs
