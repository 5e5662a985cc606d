package probe

import (
	"net/netip"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// Kind is what a probe is for.
type Kind string

// The kinds of probes. kubelet's metrics write them with a capital.
const (
	Startup   Kind = "startup"
	Liveness  Kind = "liveness"
	Readiness Kind = "readiness"
)

// Handler is how a probe is made.
type Handler string

// The handlers.
const (
	HTTP  Handler = "http"
	HTTPS Handler = "https"
	TCP   Handler = "tcp"
	GRPC  Handler = "grpc"
	Exec  Handler = "exec"
)

// Key identifies a worker.
type Key struct {
	PodUID    string
	Container string
	Kind      Kind
}

// The API server's defaults.
const (
	DefaultTimeout          = time.Second
	DefaultPeriod           = 10 * time.Second
	DefaultSuccessThreshold = 1
	DefaultFailureThreshold = 3
)

// Spec is one probe, with the defaults filled in that the API server has.
type Spec struct {
	Handler Handler
	// Host is the address or name that the probe goes to; empty: the pod's first address.
	Host    string
	Port    uint16 // of HTTP, HTTPS, TCP and GRPC; named ports are resolved
	Path    string // of HTTP and HTTPS, with the query; begins with /
	Headers []Header
	Service string   // of GRPC
	Command []string // of Exec

	InitialDelay, Timeout, Period      time.Duration
	SuccessThreshold, FailureThreshold int
}

// Header is one of an HTTP request.
type Header struct{ Name, Value string }

// Pod is what is to be known of a pod to probe it.
type Pod struct {
	UID, Namespace, Name string
	Labels               map[string]string // as the API server has them; shared, not to be changed
	// Addresses are the pod's, the first one is probed; the node's with HostNetwork.
	Addresses    []netip.Addr
	HostNetwork  bool
	Terminated   bool // phase Succeeded or Failed
	Deleting     bool
	RestartNever bool // no container is restarted but sidecars
	// Active: the agent makes the probes itself; else it only looks at kubelet's.
	Active     bool
	Containers []Container // those of init containers that go on (sidecars) included
}

// State is what a container does.
type State string

// The states.
const (
	Waiting State = "waiting"
	Running State = "running"
	Ended   State = "terminated"
)

// Container is one of a pod.
type Container struct {
	Name      string
	ID        string // with the runtime, "containerd://8a1f…"; empty: there is none yet
	State     State
	StartedAt time.Time // of Running
	Started   bool      // as kubelet says: the startup probe, if any, has succeeded
	Ready     bool
	Sidecar   bool // restartable init container
	Final     bool // Ended, and by its restart policy and exit code not to be restarted
	Restarts  int
	CPULimit  int64 // in thousandths of a CPU, its own or that of the whole pod; 0: none

	Startup, Liveness, Readiness *Spec // nil: there is none
}

// Probe returns the container's probe of a kind, or nil.
func (c *Container) Probe(k Kind) *Spec {
	switch k {
	case Startup:
		return c.Startup
	case Liveness:
		return c.Liveness
	case Readiness:
		return c.Readiness
	}
	return nil
}

// Kinds returns all kinds, in the order in which kubelet starts them.
func Kinds() []Kind { return []Kind{Startup, Readiness, Liveness} }

// Outcome is how one probe went. What it points to is the Manager's for the call.
type Outcome struct {
	At time.Time // when it ended; zero: now
	OK bool
	// Unsure, of a failure: it is not known whether kubelet counts it. It is reported, and
	// does not count towards a threshold.
	Unsure bool
	// Container is the ID of the one that was probed, as pods have it; empty: by At. A
	// failure of one that has ended meanwhile is counted for that one. More says that
	// another one of it follows.
	Container string
	More      bool
	// Detail is what is known of it besides, for the event that reports it; the
	// worker fills in names and counts. Its verdict is empty for a success. It is not kept.
	Detail event.ProbeOutcome
	// Conn is the probe's connection; nil: there was none, or it is not known.
	Conn *event.Conn
	// BootTime and CPU are those of the kernel's record that reports the outcome: they
	// are the event's identity after a restart. Without a record BootTime is 0.
	BootTime event.Duration
	CPU      uint32
}
