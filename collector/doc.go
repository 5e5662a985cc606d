// Package collector turns what the machine reports into Events, with one file per source. It
// decodes the kernel's records (package bpf), attributes their subjects to a pod, container or
// systemd unit, adds names and mount points of devices and symbols of stacks, and determines the
// verdict on failed connections.
//
// It does not decide what is a problem: the detector does. Each BPF stem has its own goroutine and
// ring, so that a slow lookup or a flood in one can't delay another.
package collector
