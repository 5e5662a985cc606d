package collector

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// Config configures the sources.
type Config struct {
	// HostRoot is the folder that contains the host's /proc and /sys: "/", or where a container
	// mounts the host's root, such as "/host".
	HostRoot string
	// PinRoot is the folder on a BPF filesystem that keeps programs and rings across restarts;
	// empty: nothing is pinned.
	PinRoot string
	// HungTaskAfter is how long a task must be blocked to be reported; zero:
	// the kernel's own hung_task_timeout_secs, or 120 s where that is off.
	HungTaskAfter time.Duration
	// Targets are the probe targets to watch, besides those in TargetsDir.
	Targets []Target
	// TargetsDir is the folder with files of probe targets, which are read again when they change;
	// empty: none.
	TargetsDir string
	// TargetSources are the sources that will call SetTargets. Targets of an earlier run stay
	// watched until each source has called.
	TargetSources []string
	// NamePod adds the names of a container's pod if the runtime's files lack them. May be nil.
	NamePod func(*event.Container)
}
