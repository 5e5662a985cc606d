// Package inject provokes real kernel faults, small and bounded, for drills and for Kernosis' own
// tests: a process killed for memory, a task stuck on a lock, a disk that refuses writes, a
// filesystem gone read-only, probes that fail in each way in which kubelet's can.
//
// [Faults] lists what `kernosis inject` offers; each [Fault] says what it will do, refuses what this
// machine can't do, does it, heals it and removes every trace. The pieces they are made of ([OOM],
// [HungTask], [FSFreeze], [DiskError], [ReadonlyFS], [Probe]) can be driven step by step: Start
// breaks something, Heal mends it, Close removes it. Their fields are set before Start, and one
// goroutine uses them.
//
// Safety. A fault touches only what it created: a memory cgroup, a file behind a loop device, a
// temporary mount, two network namespaces. It changes no sysctl and only signals its own children.
// Everything that outlives a process is written to a record file before it is created; a guard
// process removes it when the injector dies (also by SIGKILL) or exceeds its time limit, and
// [Cleanup] does the same for records that lost their guard too.
//
// Child processes are this same binary run again: main and TestMain call [RunChild] before anything
// else. Nothing here is used by the detector, and the detector must not import it.
package inject
