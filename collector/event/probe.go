package event

import "strconv"

// What a probe is for, besides kubelet's "startup", "liveness" and "readiness".
const ProbeService = "service" // of the node, or one that the configuration names

// ServiceStem and a service's name are the stem of its source: up while it is known how
// the service is, down while its probe can't be made. There is no source of all of them.
const ServiceStem = ProbeService

// Who made a probe.
const (
	ProbeObserved = "observed" // kubelet; it was only looked at
	ProbeActive   = "active"   // this agent
)

// Verdicts of a failed probe, besides those of its connection.
const (
	VerdictSlow       = "slow"         // an answer began to come, and was not complete in time
	VerdictTLS        = "tls-failed"   // the TLS handshake failed
	VerdictStatus     = "bad-status"   // answered, with a status that is a failure: HTTP, or gRPC health
	VerdictExecFailed = "exec-failed"  // the program ended with another code than 0
	VerdictExecSlow   = "exec-timeout" // the program did not end in time
	VerdictProberLate = "prober-late"  // whoever probes opened no connection in time, or was itself kept from running
	VerdictOther      = "unexplained"  // it failed, and nothing seen here says why
)

// Verdicts of probes that this agent makes itself.
const (
	VerdictName     = "name-unresolved" // the name of what is probed stands for no address
	VerdictNoAnswer = "no-answer"       // a question by UDP was not answered in time
)

// ProbeData is the payload of Probe and ProbeRecovered. The event's Container is the one
// probed, its Conn the connection of the latest probe, where there was one.
type ProbeData struct {
	Name      string `json:"name"`  // what is probed: "namespace/pod container", or a service's name
	Probe     string `json:"probe"` // startup, liveness, readiness or ProbeService
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Handler   string `json:"handler"`            // http, https, tcp, grpc or exec
	Endpoint  string `json:"endpoint,omitempty"` // "10.0.0.7:8080/healthz"; of exec the command line; bounded

	Timeout Duration `json:"timeout,omitempty"`
	Period  Duration `json:"period,omitempty"`
	// Failures is how many failures in a row this is; Threshold at how many kubelet acts:
	// restarts the container (startup, liveness) or takes it for not ready.
	Failures  uint32 `json:"failures,omitempty"`
	Threshold uint32 `json:"threshold,omitempty"`
	// Over of ProbeRecovered: it did not succeed, but is no longer made: the pod or
	// container is gone.
	Over bool `json:"over,omitempty"`

	ProbeOutcome
}

// ProbeOutcome is how one probe went, apart from the counts.
type ProbeOutcome struct {
	Feed    string `json:"feed"`              // ProbeObserved or ProbeActive
	Verdict string `json:"verdict,omitempty"` // a Verdict constant; empty: success
	// Cause is the verdict in words with its figures, as it goes into a sentence:
	// "accept queue full 129/128 on :8080".
	Cause       string   `json:"cause,omitempty"`
	Phase       string   `json:"phase,omitempty"` // connect, tls, established, answer
	Errno       string   `json:"errno,omitempty"`
	Duration    Duration `json:"duration,omitempty"`
	FirstByte   Duration `json:"firstByte,omitempty"` // until the first byte of the answer
	RTT         Duration `json:"rtt,omitempty"`
	Retransmits uint32   `json:"retransmits,omitempty"`
	Status      string   `json:"status,omitempty"` // "503", "NOT_SERVING", "exit 1"
	Said        string   `json:"said,omitempty"`   // kubelet's words, or the program's; bounded, otherwise to be trusted in nothing
	QueueLen    uint32   `json:"queueLen,omitempty"`
	QueueMax    uint32   `json:"queueMax,omitempty"`
	// Throttled is for how much of the time before the failure the container was kept
	// from the CPU by its limit, in percent; ThrottledIn how long that time was.
	Throttled   uint32   `json:"throttled,omitempty"`
	ThrottledIn Duration `json:"throttledIn,omitempty"`
	Evidence    []string `json:"evidence,omitempty"` // facts behind the verdict, bounded
	Excluded    []string `json:"excluded,omitempty"` // causes ruled out, with why, bounded
}

// Progress says in words how far the failures have come, and what kubelet does about them:
// "liveness 2 of 3 towards restart". What goes on beyond the threshold stays at it.
func (d *ProbeData) Progress() string {
	if d.Threshold == 0 {
		return d.Probe
	}
	reached := d.Failures >= d.Threshold
	b := append(make([]byte, 0, 64), d.Probe...)
	b = strconv.AppendUint(append(b, ' '), uint64(min(d.Failures, d.Threshold)), 10)
	b = strconv.AppendUint(append(b, " of "...), uint64(d.Threshold), 10)
	switch d.Probe {
	case "liveness", "startup":
		if reached {
			return string(append(b, ": kubelet restarts the container"...))
		}
		return string(append(b, " towards restart"...))
	case "readiness":
		if reached {
			return string(append(b, ": not ready"...))
		}
		return string(append(b, " towards not ready"...))
	}
	return string(b)
}
