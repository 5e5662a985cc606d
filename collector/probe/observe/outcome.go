package observe

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/collector/probe/vitals"
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
		o.looked = looked{ev, id, o.cfg.Vitals.Look(id, time.Now())}
	}
	facts := o.looked.facts
	why := one.ending(out, &facts)
	if why == "" {
		facts.Fill(d, "container")
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
// inspection was in time, or if the run has no earlier failure whose verdict could be used
// instead.
func (c *course) ending(out *probe.Outcome, f *vitals.Facts) string {
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

// byLook reports whether a verdict depends on an inspection after the failure. What came over the
// wire stays the same whatever happens to the container.
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
