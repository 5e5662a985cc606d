package probe

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// Kind is the purpose of a probe.
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

// Spec is one probe, with the API server's defaults filled in.
type Spec struct {
	Handler Handler
	// Host is the address or name that the probe goes to; empty: the pod's first address.
	Host    string
	Port    uint16 // of HTTP, HTTPS, TCP and GRPC; named ports are resolved
	Path    string // of HTTP and HTTPS, with the query; begins with /
	Headers http.Header
	Service string   // of GRPC
	Command []string // of Exec

	InitialDelay, Timeout, Period      time.Duration
	SuccessThreshold, FailureThreshold int
}

// Pod is what a pod's probes need to know of it.
type Pod struct {
	UID, Namespace, Name string
	Labels               map[string]string // as in the API server; shared, must not be changed
	// Addresses are the pod's addresses, with HostNetwork the node's. The first one is probed.
	Addresses    []netip.Addr
	Terminated   bool // phase Succeeded or Failed
	Deleting     bool
	RestartNever bool // no container but sidecars is restarted
	// Active: the agent makes the probes itself; otherwise it only observes kubelet's.
	Active     bool
	Containers []Container // including restartable init containers (sidecars)
}

// State is a container's state.
type State string

// The states.
const (
	Waiting State = "waiting"
	Running State = "running"
	Ended   State = "terminated"
)

// Container is a container of a pod.
type Container struct {
	Name      string
	ID        string // with the runtime, "containerd://8a1f…"; empty: not created yet
	State     State
	StartedAt time.Time // if Running
	Started   bool      // as reported by kubelet: the startup probe, if any, has succeeded
	Ready     bool
	Sidecar   bool  // restartable init container
	Final     bool  // Ended, and not restarted because of its restart policy and exit code
	CPULimit  int64 // in thousandths of a CPU, its own or the whole pod's; 0: none

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

// Outcome is the result of one probe. What it points to is valid only during the call.
type Outcome struct {
	At time.Time // when it ended; zero: now
	OK bool
	// Unsure, for a failure: kubelet may not count it. It is reported, but does not count towards
	// a threshold.
	Unsure bool
	// Container is the ID of the probed container, as in the pod; if empty, At decides. A failure
	// of a container that has ended meanwhile counts for that container. More says that another
	// failure of that container follows.
	Container string
	More      bool
	// Detail has further facts for the event that reports the outcome; the worker fills in names
	// and counts. Its verdict is empty for a success. It is not kept.
	Detail event.ProbeOutcome
	// Conn is the probe's connection; nil if there was none, or it is unknown.
	Conn *event.Conn
	// BootTime and CPU come from the kernel's record that reports the outcome: they identify the
	// event after a restart. Without a record BootTime is 0.
	BootTime event.Duration
	CPU      uint32
}
