package event

import "slices"

// Kind says what happened. The part before the first dot is the stem: the name
// shared by the BPF program, its source file, rule file and tests.
type Kind string

// The kinds of Event. Kinds are API: rules, journals and rule tests name them.
const (
	// HungTask: a task has been in uninterruptible sleep, without being
	// switched in once, for at least the threshold. A level signal that ends
	// with HungTaskResumed of the same task.
	HungTask Kind = "hungtask"
	// HungTaskResumed: a task reported by HungTask runs again or has exited.
	HungTaskResumed Kind = "hungtask.resumed"
	// OOMKill: the kernel chose a process as victim of an out-of-memory kill.
	OOMKill Kind = "oomkill"
	// DiskIO: a block device completed a request or bio with an error.
	DiskIO Kind = "diskio"
	// DiskStalled: a block device has I/O in flight and has completed none for at
	// least the threshold. A level signal that ends with DiskResumed of the same
	// device.
	DiskStalled Kind = "diskstall"
	// DiskResumed: a device reported by DiskStalled completes I/O again, has none
	// in flight any more, or is gone.
	DiskResumed Kind = "diskstall.resumed"
	// FSError: a filesystem found an inconsistency or failed I/O of its own.
	FSError Kind = "fserror"
	// MountReadOnly: a filesystem mounted for writing refuses writes (the
	// kernel's reaction to an error, not an administrator's remount). A level
	// signal that ends with MountWritable of the same device.
	MountReadOnly Kind = "mount.readonly"
	// MountWritable: a filesystem reported by MountReadOnly accepts writes
	// again or is no longer mounted.
	MountWritable Kind = "mount.writable"
	// SockFail: a connection to a probe target failed; the payload has the verdict.
	SockFail Kind = "sockfail"
	// SockFailRecovered: a connection to a target reported by SockFail succeeded.
	SockFailRecovered Kind = "sockfail.recovered"
	// Probe: a probe of a container or of a service of the node failed, with how many
	// failures in a row it is. Of containers these are kubelet's probes.
	Probe Kind = "probe"
	// ProbeRecovered: a probe reported by Probe succeeded, or is no longer made.
	ProbeRecovered Kind = "probe.recovered"
	// Log: a line of a log that a rule's pattern matches, with the lines before it
	// that the pattern spans.
	Log Kind = "log"
	// Check: a check program has run, with what it found. Not only faults: every
	// result is told, and what is a problem is decided by the rules.
	Check Kind = "check"
	// Gauge: how much of something of the node is in use, read at a fixed beat. Not
	// only faults: the rules decide how much is a problem.
	Gauge Kind = "gauge"

	// Lost: records of one stem were lost, with the count and the reason.
	Lost Kind = "lost"
	// Source: a source began or ceased to see its faults.
	Source Kind = "source"
	// Canary: a test record that proves the path from kernel to engine.
	Canary Kind = "canary"
)

// Kinds returns every kind, sorted.
func Kinds() []Kind {
	k := []Kind{
		HungTask, HungTaskResumed, OOMKill, DiskIO, DiskStalled, DiskResumed, FSError, MountReadOnly, MountWritable,
		SockFail, SockFailRecovered, Probe, ProbeRecovered, Log, Check, Gauge, Lost, Source, Canary,
	}
	slices.Sort(k)
	return k
}

// Stem returns the family of the kind: what comes before the first dot.
func (k Kind) Stem() string {
	for i := range len(k) {
		if k[i] == '.' {
			return string(k[:i])
		}
	}
	return string(k)
}
