// Package bpf holds the CO-RE programs, one stem (<stem>.bpf.c) a fault, and
// what is needed to run them: the choice of the best variant that this kernel
// has, pinning across restarts, the ring buffers and the counters of what was
// lost.
//
// It knows kernel records, not events: turning a record into an event is the
// collector's work. It imports nothing else of this module.
//
// Terms: a stem is one object file with a ring buffer of its own; a hook is a
// place in the kernel that a stem wants to see; a variant is one program that
// can serve a hook. Of a hook's variants the first that loads and attaches is
// used, and [Report] says why the better ones were not.
package bpf
