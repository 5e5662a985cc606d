// Package inject provokes real kernel faults, small and bounded, for drills and for Kernosis' own
// tests: an OOM kill, a task stuck on a lock, a disk that fails writes, a filesystem that turned
// read-only, and each kind of probe failure that kubelet can encounter.
//
// [Faults] lists the faults of `kernosis inject`. Each [Fault] describes itself, checks whether this
// machine supports it, provokes the fault, heals it and removes every trace. The faults are made of
// parts ([OOM], [HungTask], [FSFreeze], [DiskError], [ReadonlyFS], [Probe]) that can also be used
// step by step: Start provokes the fault, Heal ends it, Close removes everything. Their fields are
// set before Start, and one goroutine uses them.
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
