// Package machine boots a kernel in QEMU with one program in it, and reports how
// the program ended: by itself, with the machine (a kernel panic), or not in
// time. KVM is used where it works, emulation elsewhere.
//
// A machine has no disk and no network: everything it needs is packed into its
// initial file system, under the path it has here. Nothing it does reaches the
// host but what the program prints.
package machine
