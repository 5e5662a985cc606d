// Package fault defines the faults of the test pod that runs command probepod: one mode for each
// way in which a probe can fail.
//
// Only tests may import it.
package fault

// Mode is a behaviour of the pod. A container starts in mode [None], also after a restart.
type Mode string

// The modes. Those from Refused to Throttled affect the probed port.
const (
	None        Mode = "none"         // works normally
	Refused     Mode = "refused"      // nothing listens at the probed port; a listener is at PortOther
	QueueFull   Mode = "queue-full"   // the accept queue is full, and nothing accepts
	NotAccepted Mode = "not-accepted" // nothing accepts, but there is room in the queue
	Silent      Mode = "silent"       // accepts, reads, and never responds
	Reset       Mode = "reset"        // resets the connection after the request has arrived
	ResetLate   Mode = "reset-late"   // resets it within the body of the response, which kubelet does not count as a failure
	Slow        Mode = "slow"         // sends the response slowly, a byte every 200 ms
	Status      Mode = "status"       // responds with 503; NOT_SERVING over gRPC
	TLSGarbage  Mode = "tls-garbage"  // responds with something other than TLS at PortTLS
	ExecFails   Mode = "exec-fails"   // the exec probe exits with 1
	ExecHangs   Mode = "exec-hangs"   // the exec probe does not end
	Stopped     Mode = "stopped"      // the server's process is stopped and accepts no more commands
	Throttled   Mode = "throttled"    // many processes compete for the container's CPU limit
	ChildKilled Mode = "child-killed" // a child allocates memory until it is OOM-killed; the server continues. This happens once
)

// Ports of the pod.
const (
	Port        = 8080 // HTTP, any path; also for TCP probes
	PortOther   = 8081 // in mode Refused
	PortTLS     = 8443 // HTTPS
	PortGRPC    = 9090 // grpc.health.v1
	PortControl = 9000 // GET /mode?to=MODE: responds once the mode is in effect; GET /file?path=P&page=N&do=read|write
)

// Image is the name of the image in tests. Program is the package of the command.
const (
	Image   = "local.test/probepod:1"
	Program = "github.com/kernosis/kernosis/vmtest/kubetest/node/probepod"
)

// EatCommand returns the command of a container that allocates memory until it is OOM-killed.
func EatCommand() []string { return []string{"/probepod", "eat"} }

// ProbeCommand returns the command of the exec probe.
func ProbeCommand() []string { return []string{"/probepod", "probe"} }
