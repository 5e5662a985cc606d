package detector

import (
	"cmp"

	"github.com/kernosis/kernosis/collector/event"
)

// connectionFields are those of a failed connection, by itself or as a probe.
func connectionFields() []*Field {
	field := func(name string, t Type, few bool, doc string, sock func(*event.SockFailData) value, probe func(*event.ProbeData) value) *Field {
		return &Field{
			Name: "event." + name, Type: t, Kinds: kinds(event.SockFail, event.SockFailRecovered, event.Probe, event.ProbeRecovered),
			Doc: doc, few: few, read: func(e *event.Event) value {
				switch {
				case e.SockFail != nil:
					return sock(e.SockFail)
				case e.Probe != nil:
					return probe(e.Probe)
				}
				return value{}
			},
		}
	}
	list := func(l []string) value { return value{list: l[:min(len(l), maxList)]} }
	return []*Field{
		field("target", String, false, `the target's configured name, else address:port; of a probe "namespace/pod container", or the service's name`,
			func(s *event.SockFailData) value { return text(s.Target) }, func(p *event.ProbeData) value { return text(p.Name) }),
		field("verdict", String, true, "refused, syn-unanswered, accept-queue-full, reset, connected-silent, not-accepted, no-route, ports-exhausted, icmp-unreachable, local-drop, neighbor-failed, slow; of a probe also tls-failed, bad-status, exec-failed, exec-timeout, prober-late, name-unresolved, no-answer, unexplained",
			func(s *event.SockFailData) value { return text(s.Verdict) }, func(p *event.ProbeData) value { return text(p.Verdict) }),
		field("phase", String, true, "connect or established; of a probe also tls, answer",
			func(s *event.SockFailData) value { return text(s.Phase) }, func(p *event.ProbeData) value { return text(p.Phase) }),
		field("errno", String, true, "errno name seen by the socket",
			func(s *event.SockFailData) value { return text(s.Errno) }, func(p *event.ProbeData) value { return text(p.Errno) }),
		field("duration", Duration, false, "from connect to the failure",
			func(s *event.SockFailData) value { return duration(s.Duration) }, func(p *event.ProbeData) value { return duration(p.Duration) }),
		field("retransmits", Int, false, "segments sent again",
			func(s *event.SockFailData) value { return number(s.Retransmits) }, func(p *event.ProbeData) value { return number(p.Retransmits) }),
		field("queueLen", Int, false, "accept queue of the listener, where it was read",
			func(s *event.SockFailData) value { return number(s.QueueLen) }, func(p *event.ProbeData) value { return number(p.QueueLen) }),
		field("queueMax", Int, false, "limit of that queue",
			func(s *event.SockFailData) value { return number(s.QueueMax) }, func(p *event.ProbeData) value { return number(p.QueueMax) }),
		field("evidence", StringList, false, "facts behind the verdict",
			func(s *event.SockFailData) value { return list(s.Evidence) }, func(p *event.ProbeData) value { return list(p.Evidence) }),
		field("excluded", StringList, false, "causes ruled out, with why",
			func(s *event.SockFailData) value { return list(s.Excluded) }, func(p *event.ProbeData) value { return list(p.Excluded) }),
	}
}

func probeFields() []*Field {
	of := func(e *event.Event) *event.ProbeData { return e.Probe }
	field := func(name string, t Type, few bool, doc string, read func(*event.ProbeData) value) *Field {
		return &Field{Name: "event." + name, Type: t, Kinds: kinds(event.Probe, event.ProbeRecovered), Doc: doc, few: few, read: part(of, read)}
	}
	return []*Field{
		field("probe", String, true, "startup, liveness, readiness or service", func(p *event.ProbeData) value { return text(p.Probe) }),
		field("feed", String, true, "who made the probe: observed (kubelet) or active (this agent)", func(p *event.ProbeData) value { return text(p.Feed) }),
		field("cause", String, false, "the verdict in words, with its figures", func(p *event.ProbeData) value { return text(cmp.Or(p.Cause, p.Verdict)) }),
		field("progress", String, true, `how far the failures have come: "liveness 2 of 3 towards restart"; stays at the threshold`, func(p *event.ProbeData) value { return text(p.Progress()) }),
		field("failures", Int, false, "failures in a row, this one included", func(p *event.ProbeData) value { return number(p.Failures) }),
		field("threshold", Int, false, "at how many of them kubelet acts, or a service counts as failed", func(p *event.ProbeData) value { return number(p.Threshold) }),
		field("said", String, false, "kubelet's words, or the output of the probe's program", func(p *event.ProbeData) value { return text(p.Said) }),
		field("over", Bool, false, "it did not succeed, but is no longer made (probe.recovered)", func(p *event.ProbeData) value { return boolean(p.Over) }),
		field("namespace", String, false, "the pod's namespace", func(p *event.ProbeData) value { return text(p.Namespace) }),
		field("pod", String, false, "the pod's name", func(p *event.ProbeData) value { return text(p.Pod) }),
		field("container", String, false, "name of the container that is probed", func(p *event.ProbeData) value { return text(p.Container) }),
		field("handler", String, true, "http, https, tcp, grpc or exec", func(p *event.ProbeData) value { return text(p.Handler) }),
		field("endpoint", String, false, "where the probe goes: 10.0.0.7:8080/healthz; of exec the command", func(p *event.ProbeData) value { return text(p.Endpoint) }),
		field("timeout", Duration, false, "the probe's timeout", func(p *event.ProbeData) value { return duration(p.Timeout) }),
		field("period", Duration, false, "how often it is made", func(p *event.ProbeData) value { return duration(p.Period) }),
		field("firstByte", Duration, false, "until the first byte of the answer; 0: not known, or none came", func(p *event.ProbeData) value { return duration(p.FirstByte) }),
		field("rtt", Duration, false, "round-trip time of the connection; 0: not known", func(p *event.ProbeData) value { return duration(p.RTT) }),
		field("throttled", Int, false, "for how much of throttledIn the container was kept from the CPU by its limit, percent", func(p *event.ProbeData) value { return number(p.Throttled) }),
		field("throttledIn", Duration, false, "the time before the failure that throttled is of", func(p *event.ProbeData) value { return duration(p.ThrottledIn) }),
	}
}
