// Package bpf contains the CO-RE programs, one stem (<stem>.bpf.c) for each kind of fault, and what
// runs them: it selects the best variant that this kernel supports, keeps programs pinned across
// restarts, reads the ring buffers and counts lost records.
//
// It handles kernel records, not events: the collector turns a record into an event. It imports
// nothing else of this module.
//
// Terms: a stem is one object file with a ring buffer of its own; a hook is a place in the kernel
// that a stem observes; a variant is one program that can serve a hook. The first variant of a hook
// that loads and attaches is used, and [VariantReport] gives the reason why better ones were not.
package bpf
