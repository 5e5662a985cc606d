// Package stack reads what a task waits for from its kernel stack, as /proc/PID/stack and the
// programs for hung tasks give it: "folio_wait_bit_common+0x13d [module]", the innermost frame
// first.
package stack
