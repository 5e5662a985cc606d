// Package vmtest is the proof that Kernosis sees each fault on each kernel: real
// faults, provoked in a virtual machine of their own, against the real agent.
//
// Its tests, one file a stem, run inside such a machine only, because some of
// what they break (memory of the whole machine, disks, filesystems) is nobody's
// to break elsewhere. Each fault is provoked 23 times, and must give 23 events,
// 0 losses, the right subject and cause, and a condition that clears.
//
//	make vmtest KERNEL=6.1 STEM=oomkill
//	CGO_ENABLED=0 go test -exec "$PWD/bin/vmrun -kernel 6.1" ./vmtest/...
//
// The folders below it make that possible: kernel fetches kernels, machine
// boots one in QEMU, vmrun is the command for go test -exec (and, inside, the
// machine's first process), vmmatrix runs everything and draws the table of
// docs/kernels.md.
package vmtest
