// Package vmtest proves that Kernosis detects each fault on each kernel: it provokes real
// faults in virtual machines and checks the reports of the real agent.
//
// Its tests, one file per stem, run only inside such a machine, because they break things
// (memory of the whole machine, disks, filesystems) that must not be broken elsewhere. Each
// fault is provoked 23 times and must result in 23 events, 0 losses, the right subject and
// cause, and a condition that clears.
//
//	make vmtest KERNEL=6.1 STEM=oomkill
//	CGO_ENABLED=0 go test -exec "$PWD/bin/vmrun -kernel 6.1" ./vmtest/...
//
// The folders below it provide the tools: kernel fetches kernels, machine boots one in QEMU,
// vmrun is the command for go test -exec (and also the machine's first process), and vmmatrix
// runs everything and generates the table of docs/kernels.md.
package vmtest
