// Package stack determines what a task waits for from its kernel stack, in the format of
// /proc/PID/stack and the BPF programs for hung tasks: "folio_wait_bit_common+0x13d [module]", the
// innermost frame first.
package stack
