package observe

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/vitals"
)

// Manager is what of a probe.Manager is used.
type Manager interface {
	Observe(probe.Key, probe.Outcome) bool
	Pods() []*probe.Pod
	Pod(uid string) (*probe.Pod, bool)
}

// Target is a place whose connections from kubelet are to be watched.
type Target struct {
	Name      string
	Address   netip.Addr
	Port      uint16
	NetNS     uint32        // kubelet's
	SlowAfter time.Duration // an answer that is complete no earlier came too late
}

// Count is what became of the connections to a Target since it was set.
type Count struct {
	Name              string
	Succeeded, Failed uint64
	Started           time.Time // of the latest connection
}

// Sockets watches connections. Set replaces all targets.
type Sockets interface {
	Set([]Target) error
	Counts() ([]Count, error)
}

// Results is what kubelet counts of one probe since it began to make it.
type Results struct{ Failed, Succeeded uint64 }

// Kubelet is asked for its counts of all probes.
type Kubelet interface {
	Results(context.Context) (map[probe.Key]Results, error)
}

// Unhealthy is what kubelet said of a failed probe in an Event.
type Unhealthy struct {
	PodUID, Container string
	Kind              probe.Kind
	At                time.Time // of the latest occurrence, in whole seconds
	Message           string
	Count             int
}

// Words is asked for kubelet's Events about the probes of a pod.
type Words interface {
	Unhealthy(ctx context.Context, namespace, podUID string) ([]Unhealthy, error)
}

// The parts whose state is reported.
const (
	PartSockets = "sockets" // kubelet's connections
	PartResults = "results" // kubelet's counts
	PartEvents  = "events"  // kubelet's words
)

// Config says what an Observer works with.
type Config struct {
	Manager Manager
	Sockets Sockets
	Kubelet Kubelet // nil: only what sockets show
	Words   Words   // nil: kubelet's words are not asked for
	Vitals  *vitals.Watcher
	FS      hostfs.FS
	// Comms are the names that kubelet's process may have.
	Comms []string
	// State is reported when a part begins or ceases to see, from the goroutine of Run.
	State func(part string, err error)
	Log   *slog.Logger

	// Poll and PollAtMost are how often kubelet's counts are asked for, and with how much
	// time between at least; zero: 10 s and 5 s.
	Poll, PollAtMost time.Duration
}

// Stats counts what became of what was seen.
type Stats struct {
	Taken      uint64 // outcomes that a worker took, by sockets
	Counted    uint64 // by kubelet's counts alone
	Refused    uint64 // no worker took it: gated, on hold, deleting
	Others     uint64 // connections that kubelet did not open
	Repeated   uint64 // a second try of the same probe
	Uncounted  uint64 // kubelet did not count it
	Guessed    uint64 // of Taken, those of one of several probes that could not be reported
	Held       uint64 // of Taken, those that waited for kubelet's counts
	Unsure     uint64 // of Taken, failures that kubelet may not count: its counts can't be had
	Overflowed uint64 // those for which there was no room to wait: guessed, or left to kubelet's counts
	Late       uint64 // of pods that are gone
	Polls      uint64
	PollErrors uint64
	Asked      uint64 // for kubelet's words
	Unasked    uint64 // for lack of a token
	Targets    int
	Unwatched  int // network probes without a place that can be watched
}
