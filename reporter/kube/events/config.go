package events

import (
	"cmp"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/pods"
)

// DefaultIdle is the default of Config.Idle.
const DefaultIdle = 10 * time.Minute

// Component is the source of the Events.
const Component = "kernosis"

// PodSource finds a pod by the UID in a cgroup's name.
type PodSource interface {
	Pod(uid string) (pods.Pod, bool)
	// Known reports whether all pods that the node had at a time are known.
	Known(at time.Time) bool
}

// Config configures a Sink. Zero bounds mean their defaults.
type Config struct {
	Node string
	// Namespace of Events on the Node; empty: default, as kubelet uses.
	Namespace string
	// Client's own limit (5 requests a second unless set) must not be below what
	// the sink may send: set QPS of its REST configuration to -1.
	Client kubernetes.Interface
	Pods   PodSource
	// Dir is the folder of events.json, the sink's state.
	Dir string
	// JournalDir is the journal's folder, JournalSeq the number of its newest entry when the sink
	// is created.
	JournalDir string
	JournalSeq uint64
	// JournalWritten returns the number up to which all entries are in the journal's files. May
	// be nil if entries never wait.
	JournalWritten func() uint64
	Log            *slog.Logger
	// Acked is called once, with the kernel's time, for each series that begins with a kernel
	// record, when the API server has its Event. May be nil.
	Acked func(fault time.Time)
	// Fault is called at each stage, so that tests can end the process there.
	Fault func(Stage)

	PatchEvery time.Duration // the least time between two writes of one Event; 10 s
	PatchMost  time.Duration // PatchEvery grows to this while a series goes on; 1 min
	Idle       time.Duration // a series ends after this time without an occurrence; DefaultIdle
	SaveEvery  time.Duration // the least time between two writes of events.json; 10 s
	PodWait    time.Duration // how long an Event waits for its pod to be known; 5 s
	Timeout    time.Duration // of a request; 10 s
}

func (c Config) withDefaults() Config {
	c.PatchEvery, c.PatchMost = cmp.Or(c.PatchEvery, 10*time.Second), cmp.Or(c.PatchMost, time.Minute)
	// kubelet's restart back-off reaches 5 min: a container that is killed again and again stays one
	// series.
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.SaveEvery, c.PodWait = cmp.Or(c.SaveEvery, 10*time.Second), cmp.Or(c.PodWait, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Fault == nil {
		c.Fault = func(Stage) {}
	}
	if c.Acked == nil {
		c.Acked = func(time.Time) {}
	}
	return c
}

// Stage is a point in the processing of an Event where a kill may interrupt it.
type Stage string

// The stages, in order.
const (
	StageFolded   Stage = "folded"   // an entry is in the table
	StageWritten  Stage = "written"  // the new state is on the disk, beside the old one
	StageSaved    Stage = "saved"    // the new state has replaced the old one
	StageCreating Stage = "creating" // the request goes out next
	StageCreated  Stage = "created"  // the API server has answered, which is not recorded yet
	StagePatching Stage = "patching"
	StagePatched  Stage = "patched"
	StageAcked    Stage = "acked" // the answer is recorded in the table
)
