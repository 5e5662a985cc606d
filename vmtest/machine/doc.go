// Package machine boots a kernel in QEMU with one program in it, and reports how the program ended:
// by itself, because the machine died (a kernel panic), or at the timeout. It uses KVM where it
// works, and emulation elsewhere.
//
// A machine has no disk and no network: everything it needs is packed into its initramfs, under the
// path it has on the host. Only the program's output leaves the machine. [Init] is its
// first process, and does not depend on the program.
package machine
