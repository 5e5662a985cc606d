package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

// judged is the decision about a connection.
type judged struct {
	ok      bool
	why     string // why the probe is certain; empty: it is a guess
	counted bool   // kubelet has counted the failure
}

// kept is the result of inspecting the latest failure of a run.
type kept struct {
	detail event.ProbeOutcome // without evidence
	frozen bool
}

// outcome returns the Outcome of a connection for the Manager.
func (o *Observer) outcome(ev *event.Event, one *course, j judged) *probe.Outcome {
	s := ev.SockFail
	out := &probe.Outcome{At: ev.Time, OK: j.ok, Conn: ev.Conn, BootTime: ev.BootTime, CPU: ev.CPU}
	out.Detail = event.ProbeOutcome{Feed: event.ProbeObserved, Phase: s.Phase, Duration: s.Duration, RTT: s.RTT}
	counts := meaning(one.spec.Handler, s)
	if !j.ok && counts == countsSuccess {
		out.OK = true
	}
	if out.OK {
		return out
	}
	d := &out.Detail
	d.Verdict, d.Errno, d.Retransmits, d.QueueLen, d.QueueMax = s.Verdict, s.Errno, s.Retransmits, s.QueueLen, s.QueueMax
	d.Cause = causeOf(s, ev.Conn, one.spec.Timeout)
	d.Evidence, d.Excluded = slices.Clone(s.Evidence), slices.Clone(s.Excluded)
	if j.why == "" {
		d.Evidence = append(d.Evidence, "guessed which of the probes of "+portText(ev.Conn.Dst)+" it was")
	}
	out.Container = one.owner(ev.Time)
	frozen := o.look(ev, one, out)
	one.draft = &kept{*d, frozen}
	one.draft.detail.Evidence, one.draft.detail.Excluded = nil, nil
	if counts == countsMaybe && !j.counted {
		out.Unsure = true
		d.Cause += "; kubelet may not count it"
		d.Evidence = append(d.Evidence, "the answer had started: kubelet does not count such a failure if the header was complete, and its counts are unavailable")
	}
	return out
}

// look adds the state of the container. It reports whether the container is frozen.
func (o *Observer) look(ev *event.Event, one *course, out *probe.Outcome) bool {
	d := &out.Detail
	if d.Verdict == event.VerdictPortsExhausted || d.Verdict == event.VerdictNoRoute {
		return false // the container is not to blame
	}
	id := bareID(out.Container)
	if o.looked.ev != ev || o.looked.id != id {
		o.looked = looked{ev, id, o.vitals.look(id, time.Now())}
	}
	facts := o.looked.facts
	why := one.ending(out, &facts)
	if why == "" {
		facts.fill(d, "container")
		return facts.Frozen
	}
	// An inspection now shows the end of the container, not the failure.
	was := &one.kept.detail
	d.Evidence = append(d.Evidence, "the container was ending when examined ("+why+"): the verdict is from the previous failure; by itself this one looks like "+d.Verdict)
	d.Verdict, d.Cause, d.QueueLen, d.QueueMax = was.Verdict, was.Cause, was.QueueLen, was.QueueMax
	d.Throttled, d.ThrottledIn = was.Throttled, was.ThrottledIn
	return one.kept.frozen
}

// ending returns why an inspection came too late to explain the failure. It returns "" if the
// inspection was in time, or if the run has no earlier failure with a verdict to use instead.
func (c *course) ending(out *probe.Outcome, f *facts) string {
	d := &out.Detail
	if c.kept == nil || !byLook(d.Verdict) || !byLook(c.kept.detail.Verdict) || connected(d.Verdict) && !connected(c.kept.detail.Verdict) {
		return ""
	}
	same := d.Verdict == c.kept.detail.Verdict
	last := c.key.Kind != probe.Readiness && c.run+1 >= c.spec.FailureThreshold
	switch {
	case f.Ending != "":
		return f.Ending
	case f.Frozen && !c.kept.frozen && last:
		return "it was frozen in the meantime"
	case same:
		return ""
	case c.pod.Deleting:
		return "the pod is being deleted"
	case out.Container != c.container.ID, c.container.State != probe.Running:
		return "it no longer runs"
	case d.Verdict == event.VerdictTimeout && first(d.Evidence, "no listener on", "") != "":
		return "its listener is gone"
	}
	return ""
}

// byLook reports whether a verdict depends on an inspection after the failure, rather than on
// what was received, which later changes of the container don't affect.
func byLook(verdict string) bool {
	switch verdict {
	case event.VerdictTimeout, event.VerdictAcceptQueueFull, event.VerdictSilent, event.VerdictNotAccepted:
		return true
	}
	return false
}

// connected reports whether a verdict means that the client's connection was established.
func connected(verdict string) bool {
	return verdict == event.VerdictSilent || verdict == event.VerdictNotAccepted
}

// portText returns the port in the usual form, ":8080".
func portText(at netip.AddrPort) string { return ":" + strconv.Itoa(int(at.Port())) }

// causeOf describes the verdict of a connection in words, with its figures.
func causeOf(s *event.SockFailData, c *event.Conn, timeout time.Duration) string {
	port, took := portText(c.Dst), time.Duration(s.Duration)
	if timedOut(s.Verdict) && took > timeout-timeoutLess && took < timeout+timeoutMore {
		took = timeout // use the configured value, so that the text stays the same
	}
	switch s.Verdict {
	case event.VerdictRefused:
		return "RST: nothing listens on " + port + other(s.Evidence)
	case event.VerdictTimeout:
		if full := first(s.Evidence, "connection tracking is full", ""); full != "" {
			return full
		}
		if s.Retransmits == 0 {
			return "SYN unanswered for " + display.Duration(took)
		}
		return fmt.Sprintf("SYN unanswered for %s, sent %d times", display.Duration(took), s.Retransmits+1)
	case event.VerdictAcceptQueueFull:
		if s.QueueMax == 0 && s.QueueLen == 0 {
			return "accept queue full on " + port
		}
		return fmt.Sprintf("accept queue full %d/%d on %s", s.QueueLen, s.QueueMax, port)
	case event.VerdictNotAccepted:
		return fmt.Sprintf("connected, but not accepted in %s: it waits in the accept queue of %s", display.Duration(took), port)
	case event.VerdictSilent:
		return "SYN answered, request acked, no byte back in " + display.Duration(took)
	case event.VerdictSlow:
		return "the answer started, but was not complete in " + display.Duration(took)
	case event.VerdictReset:
		if s.Received > 0 {
			return "connection to " + port + " reset in the middle of the answer"
		}
		return "connection to " + port + " reset after it was established"
	case event.VerdictNoRoute:
		text := "no route to " + c.Dst.Addr().String()
		if s.Errno != "" {
			text += " (" + s.Errno + ")"
		}
		return text
	case event.VerdictNeighborFailed:
		return "the next hop to " + c.Dst.Addr().String() + " does not resolve"
	case event.VerdictUnreachable:
		return first(s.Evidence, "ICMP", "an ICMP error came back")
	case event.VerdictLocalDrop:
		return first(s.Evidence, "dropped", "this node dropped the packet")
	case event.VerdictPortsExhausted:
		return "no local port is free to connect to " + c.Dst.String()
	}
	return s.Verdict
}

// first returns the first fact that contains word, or otherwise if there is none.
func first(evidence []string, word, otherwise string) string {
	for _, e := range evidence {
		if strings.Contains(e, word) {
			return e
		}
	}
	return otherwise
}

// other describes what listens instead, if that was checked.
func other(evidence []string) string {
	for _, e := range evidence {
		if strings.HasPrefix(e, "listens on ") {
			return " (container " + e + ")"
		}
	}
	return ""
}
