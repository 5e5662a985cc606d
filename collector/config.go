package collector

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// Config says how the sources run.
type Config struct {
	// HostRoot is where the host's /proc and /sys are: "/" or, in a container
	// that has the host's root mounted, such as "/host".
	HostRoot string
	// PinRoot is the folder on a BPF filesystem that keeps programs and rings
	// across restarts; empty: nothing is pinned.
	PinRoot string
	// HungTaskAfter is how long a task must be blocked to be reported; zero:
	// the kernel's own hung_task_timeout_secs, or 120 s where that is off.
	HungTaskAfter time.Duration
	// Targets are the probe targets to watch, besides those of TargetsDir.
	Targets []Target
	// TargetsDir holds files of probe targets, read again when they change;
	// empty: none.
	TargetsDir string
	// TargetSources are those that will call SetTargets. What an earlier run watched is
	// watched until each of them has.
	TargetSources []string
	// NamePod adds the names of a container's pod where the runtime's files do not report them;
	// nil: nobody knows better.
	NamePod func(*event.Container)
}
