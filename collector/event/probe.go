package event

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/kernosis/kernosis/collector/display"
)

const (
	// Probe: a probe of a container or of a service of the node failed, with the number of
	// consecutive failures. For containers these are kubelet's probes.
	Probe Kind = "probe"
	// ProbeRecovered: a probe reported by Probe succeeded, or is no longer made.
	ProbeRecovered Kind = "probe.recovered"
)

// The purpose of a probe, besides kubelet's "startup", "liveness" and "readiness".
const ProbeService = "service" // a service of the node, or one from the configuration

// ServiceStem and a service's name are the stem of its source: up while the service's state is
// known, down while its probe can't be made. There is no source for all of them.
const ServiceStem = ProbeService

// Who made a probe.
const (
	ProbeObserved = "observed" // by kubelet; the agent only watched it
	ProbeActive   = "active"   // by this agent
)

// Verdicts of a failed probe, besides those of its connection.
const (
	VerdictSlow       = "slow"         // an answer started but was not complete in time
	VerdictTLS        = "tls-failed"   // the TLS handshake failed
	VerdictStatus     = "bad-status"   // the answer's status is a failure: HTTP, or gRPC health
	VerdictExecFailed = "exec-failed"  // the program exited with a code other than 0
	VerdictExecSlow   = "exec-timeout" // the program did not end in time
	VerdictProberLate = "prober-late"  // the prober opened no connection in time, or was itself kept from running
	VerdictOther      = "unexplained"  // it failed, and nothing observed here explains it
)

// Verdicts of probes that this agent makes itself.
const (
	VerdictName     = "name-unresolved" // the name of the probed service resolves to no address
	VerdictNoAnswer = "no-answer"       // a UDP query was not answered in time
)

// ProbeData is the payload of Probe and ProbeRecovered. The event's Container is the probed one,
// its Conn the connection of the latest probe, if there was one.
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
	// Failures is the number of consecutive failures. Threshold is the number at which kubelet
	// restarts the container (startup, liveness) or marks it not ready.
	Failures  uint32 `json:"failures,omitempty"`
	Threshold uint32 `json:"threshold,omitempty"`
	// Over of ProbeRecovered: it is no longer made, as the pod or container is gone.
	Over bool `json:"over,omitempty"`

	ProbeOutcome
}

// ProbeOutcome is the result of one probe, without the counts.
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
	Said        string   `json:"said,omitempty"`   // kubelet's message, or the program's output; bounded, otherwise untrusted
	QueueLen    uint32   `json:"queueLen,omitempty"`
	QueueMax    uint32   `json:"queueMax,omitempty"`
	// Throttled is the percentage of the time before the failure in which the container's CPU limit
	// stopped it; ThrottledIn is the length of that time.
	Throttled   uint32   `json:"throttled,omitempty"`
	ThrottledIn Duration `json:"throttledIn,omitempty"`
	Evidence    []string `json:"evidence,omitempty"` // facts behind the verdict, bounded
	Excluded    []string `json:"excluded,omitempty"` // causes ruled out, with why, bounded
}

// Progress describes how far the failures have come, and what kubelet does about them: "liveness 2
// of 3 towards restart". The count stays at the threshold.
func (d *ProbeData) Progress() string {
	if d.Threshold == 0 {
		return d.Probe
	}
	then, reached := "", d.Failures >= d.Threshold
	switch d.Probe {
	case "liveness", "startup":
		if then = " towards restart"; reached {
			then = ": kubelet restarts the container"
		}
	case "readiness":
		if then = " towards not ready"; reached {
			then = ": not ready"
		}
	}
	decimal := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	return d.Probe + " " + decimal(min(d.Failures, d.Threshold)) + " of " + decimal(d.Threshold) + then
}

func (d *ProbeData) facts(_ *Event, f *Facts) {
	f.Verdict, f.Cause = d.Verdict, d.Cause
	if d.Container != "" {
		f.Container = d.Container
	}
	if d.Failures > 0 {
		f.State = d.state()
	}
	if d.ThrottledIn > 0 && d.Throttled >= throttledMuch {
		f.Because = fmt.Sprintf("container CPU-throttled %d %% of the last %s", d.Throttled, display.Duration(d.ThrottledIn))
	}
	f.Evidence = append(f.Evidence, d.Evidence...)
	if d.QueueMax > 0 && d.Cause == "" {
		f.add("accept queue %d/%d", d.QueueLen, d.QueueMax)
	}
	if d.Status != "" && d.Cause == "" {
		f.add("answered %s", d.Status)
	}
	if d.Endpoint != "" {
		how := fmt.Sprintf("%s %s", d.Handler, d.Endpoint)
		if d.Timeout > 0 {
			how += fmt.Sprintf(", time-out %s", display.Duration(d.Timeout))
		}
		if d.Period > 0 {
			how += fmt.Sprintf(", every %s", display.Duration(d.Period))
		}
		f.add("%s", how)
	}
	if d.Said != "" {
		f.add("message: %q", d.Said)
	}
	f.Excluded = append(f.Excluded, d.Excluded...)
}

// state returns "liveness 2 of 3 towards restart", and at the threshold the count of failures.
func (d *ProbeData) state() string {
	switch {
	case d.Threshold == 0:
		return fmt.Sprintf("%s failed %d times in a row", d.Probe, d.Failures)
	case d.Failures < d.Threshold:
		return d.Progress()
	case d.Probe == "readiness":
		return fmt.Sprintf("%s failed %d times in a row, %d make it not ready", d.Probe, d.Failures, d.Threshold)
	}
	return fmt.Sprintf("%s %d of %d: kubelet restarts it", d.Probe, d.Failures, d.Threshold)
}

func probeFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *ProbeData { return e.Probe }, Probe, ProbeRecovered)
	return []*Field{
		few(field("probe", TypeString, "startup, liveness, readiness or service", func(p *ProbeData) Value { return text(p.Probe) })),
		few(field("feed", TypeString, "observed (kubelet probes) or active (the agent does)", func(p *ProbeData) Value { return text(p.Feed) })),
		field("cause", TypeString, "the verdict in words, with figures", func(p *ProbeData) Value { return text(cmp.Or(p.Cause, p.Verdict)) }),
		few(field("progress", TypeString, `"liveness 2 of 3 towards restart"; stays at the threshold`, func(p *ProbeData) Value { return text(p.Progress()) })),
		field("failures", TypeInt, "consecutive failures", func(p *ProbeData) Value { return number(p.Failures) }),
		field("threshold", TypeInt, "failures at which kubelet acts, or a service counts as failed", func(p *ProbeData) Value { return number(p.Threshold) }),
		field("said", TypeString, "kubelet's message, or the probe program's output", func(p *ProbeData) Value { return text(p.Said) }),
		field("over", TypeBool, "probe.recovered: the pod or container is gone", func(p *ProbeData) Value { return boolean(p.Over) }),
		field("namespace", TypeString, "the pod's namespace", func(p *ProbeData) Value { return text(p.Namespace) }),
		field("pod", TypeString, "the pod's name", func(p *ProbeData) Value { return text(p.Pod) }),
		field("container", TypeString, "name of the probed container", func(p *ProbeData) Value { return text(p.Container) }),
		few(field("handler", TypeString, "http, https, tcp, grpc or exec", func(p *ProbeData) Value { return text(p.Handler) })),
		field("endpoint", TypeString, "10.0.0.7:8080/healthz; exec: the command", func(p *ProbeData) Value { return text(p.Endpoint) }),
		field("timeout", TypeDuration, "the probe's timeout", func(p *ProbeData) Value { return duration(p.Timeout) }),
		field("period", TypeDuration, "the probe's period", func(p *ProbeData) Value { return duration(p.Period) }),
		field("firstByte", TypeDuration, "time to the first byte of the answer", func(p *ProbeData) Value { return duration(p.FirstByte) }),
		field("rtt", TypeDuration, "round-trip time", func(p *ProbeData) Value { return duration(p.RTT) }),
		field("throttled", TypeInt, "percent of throttledIn for which the CPU limit stopped the container", func(p *ProbeData) Value { return number(p.Throttled) }),
		field("throttledIn", TypeDuration, "measured period before the failure", func(p *ProbeData) Value { return duration(p.ThrottledIn) }),
	}
}
