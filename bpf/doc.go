// Package bpf contains the CO-RE programs, one stem (<stem>.bpf.c) for each kind of fault, and runs
// them: it selects the best variant that this kernel supports, keeps programs pinned across
// restarts, reads the ring buffers and counts lost records.
//
// It handles kernel records, not events: the collector turns a record into an event. It imports
// nothing else of this module.
//
// Terms: a stem is one object file with a ring buffer of its own; a hook is a place in the kernel
// that a stem observes; a variant is one program that can serve a hook. The package uses the first
// variant of a hook that loads and attaches; [VariantReport] has the reasons why better ones could
// not be used.
package bpf
