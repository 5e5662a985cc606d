// Package collector turns what the machine reports into Events: one file per
// source. The kernel's records (package bpf) are decoded, the subject they
// captured is attributed to a pod, container or systemd unit, devices get
// their names and mount points, stacks their symbols, and a failed connection
// its verdict.
//
// It decides nothing about problems: that is the detector's work. Each BPF
// stem has a goroutine and a ring of its own, so that a slow look-up or a
// flood in one can't hold up another.
package collector
