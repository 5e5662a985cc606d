// Package fault names what can go wrong in the test pod that command probepod is the
// program of: one mode for each way in which a probe can fail.
//
// It must not be imported by anything but tests.
package fault

// Mode is what the pod does. It begins with [None], and again after each restart of its
// container.
type Mode string

// The modes. Those from Refused to Throttled are about the port that is probed.
const (
	None        Mode = "none"         // all is well
	Refused     Mode = "refused"      // nothing listens; there is a listener at PortOther
	QueueFull   Mode = "queue-full"   // the accept queue is full, and nobody accepts
	NotAccepted Mode = "not-accepted" // nobody accepts; there is room in the queue
	Silent      Mode = "silent"       // accepts, reads, and never answers
	Reset       Mode = "reset"        // resets the connection when the request has come
	ResetLate   Mode = "reset-late"   // resets it within the answer's body, which kubelet takes for no failure
	Slow        Mode = "slow"         // answers a byte every 200 ms
	Status      Mode = "status"       // answers with 503; NOT_SERVING over gRPC
	TLSGarbage  Mode = "tls-garbage"  // answers what is no TLS at PortTLS
	ExecFails   Mode = "exec-fails"   // the exec probe ends with 1
	ExecHangs   Mode = "exec-hangs"   // the exec probe does not end
	Stopped     Mode = "stopped"      // the server's process is stopped; it takes no commands any more
	Throttled   Mode = "throttled"    // many processes want the CPU that the container is limited to
	ChildKilled Mode = "child-killed" // a child takes memory until it is killed; the server goes on. Not lasting
)

// Ports of the pod.
const (
	Port        = 8080 // HTTP, any path; for TCP probes too
	PortOther   = 8081 // in mode Refused
	PortTLS     = 8443 // HTTPS
	PortGRPC    = 9090 // grpc.health.v1
	PortControl = 9000 // GET /mode?to=MODE: answers once it is in force; GET /file?path=P&page=N&do=read|write
)

// Image is what the tests call the image, Program the package of the command.
const (
	Image   = "local.test/probepod:1"
	Program = "github.com/kernosis/kernosis/vmtest/kubetest/node/probepod"
)

// EatCommand returns that of a container that takes memory until it is killed.
func EatCommand() []string { return []string{"/probepod", "eat"} }

// ProbeCommand returns that of the exec probe.
func ProbeCommand() []string { return []string{"/probepod", "probe"} }
