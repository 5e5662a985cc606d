package observe

import (
	"context"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

const (
	// confirmAfter is how long after kubelet's counts a failed connection may still arrive: its
	// inspection takes two seconds at most.
	confirmAfter = 2500 * time.Millisecond
	// confirmNone is confirmAfter for probes without a connection, because kubelet's Events take a
	// moment.
	confirmNone = 500 * time.Millisecond
	// wordsRate (per second) and wordsBurst limit requests to the API server: a node where all pods fail
	// sends no more requests than four nodes that renew their Leases.
	wordsRate, wordsBurst = 0.25, 10
	// askAgainAfter is when a request that failed is repeated if no other probe fails before: soon enough
	// that a short outage of the API server raises no alert, which takes 15 minutes.
	askAgainAfter = 5 * time.Minute
	// wordsSlack: the times of Events are whole seconds, from another clock reading.
	wordsSlack = 2 * time.Second
	// maxReported is how many failures of one probe are reported at a time: one a second for one
	// interval.
	maxReported = 15
)

// missed is failures of a probe that kubelet has counted but no socket has shown.
type missed struct {
	course
	one   *course
	n     uint64
	until time.Time // the failures were counted between course.from and until
}

// confirmAt returns when failures that only kubelet has counted are reported.
func (c *course) confirmAt() time.Time {
	if !c.at.IsValid() {
		return c.missing.Add(confirmNone)
	}
	return c.missing.Add(confirmAfter)
}

// belong decides which container the additional failures in kubelet's counts belong to, because
// kubelet counts by container name. If the container was replaced meanwhile, and kubelet restarts
// containers for this kind of probe, the failures caused the replacement and belong to the earlier
// container.
func (c *course) belong(now, from time.Time) {
	c.missing, c.from, c.owners = now, from, [2]string{c.container.ID, ""}
	if c.was != "" && c.changed.After(from) {
		c.owners = [2]string{c.was, c.container.ID}
		if c.key.Kind == probe.Readiness {
			c.owners = [2]string{c.container.ID, c.was}
		}
	}
}

// owner returns the ID of the container whose connection failed at a time; empty: it has no ID
// yet. Start times are in whole seconds. Within that second, a failure that reaches the threshold
// for a restart belongs to the earlier container.
func (c *course) owner(at time.Time) string {
	begun := c.container.StartedAt
	if c.was != "" && at.Before(c.changed) && (at.Before(begun) ||
		at.Before(begun.Add(time.Second)) && c.key.Kind != probe.Readiness && c.wasRun == c.spec.FailureThreshold-1) {
		return c.was
	}
	return c.container.ID
}

// confirm reports failures that only kubelet has counted.
func (o *Observer) confirm(ctx context.Context, now time.Time) {
	o.mu.Lock()
	var list []missed
	for _, one := range o.index.courses {
		if one.missing.IsZero() || now.Before(one.confirmAt()) {
			continue
		}
		// Held connections are reported with the next counts.
		if excess, held := one.excess(), o.waitingFor(one); excess > held {
			list = append(list, missed{course: *one, one: one, n: excess - held, until: one.missing})
		}
		one.missing = time.Time{}
	}
	o.mu.Unlock()
	if len(list) == 0 {
		return
	}
	counts, err := o.cfg.Sockets.Counts()
	if err != nil {
		counts = nil
	}
	words := map[string][]Unhealthy{} // by pod, each asked once
	failed := false                   // a request did: each may take its whole timeout, so that no other follows
	for i := range list {
		m := &list[i]
		said, asked := words[m.key.PodUID]
		if !asked {
			said, failed = o.ask(ctx, m, now, failed)
			words[m.key.PodUID] = said
		}
		out := o.unseen(m, said, counts, now)
		o.mu.Lock()
		o.count(m, out)
		o.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
	}
}

// count reports the failures to the Manager.
func (o *Observer) count(m *missed, out probe.Outcome) {
	m.one.accounted += m.n
	owners := m.owners
	if now := m.one.container.ID; owners[1] == "" && owners[0] != now {
		owners[1] = now
	}
	for n := min(m.n, maxReported); n > 0; n-- {
		out.At, out.More = m.until.Add(-time.Duration(n-1)*m.spec.Period), n > 1
		taken := false
		for _, out.Container = range owners {
			if taken = out.Container != "" && o.cfg.Manager.Observe(m.key, out); taken {
				break
			}
			out.At = m.until // the other container may have started since
		}
		if !taken {
			o.stats.Refused++
			continue
		}
		o.stats.Counted++
		if out.Container == m.one.container.ID {
			m.one.failing, m.one.ended = true, out.At
			m.one.run++
		}
	}
}

// ask returns kubelet's Events about a pod's probes, or nil if they can't be requested now. failed:
// a request failed, this one or one before.
func (o *Observer) ask(ctx context.Context, m *missed, now time.Time, failedBefore bool) (said []Unhealthy, failed bool) {
	if o.cfg.Words == nil {
		return nil, false
	}
	if failedBefore || !o.words.AllowN(now, 1) {
		o.mu.Lock()
		o.stats.Unasked++
		o.mu.Unlock()
		return nil, failedBefore
	}
	said, err := o.request(ctx, m.pod, now)
	return said, err != nil
}

// request requests kubelet's Events about a pod's probes.
func (o *Observer) request(ctx context.Context, pod *probe.Pod, now time.Time) ([]Unhealthy, error) {
	asked, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	said, err := o.cfg.Words.Unhealthy(asked, pod.Namespace, pod.UID)
	o.mu.Lock()
	o.stats.Asked++
	o.mu.Unlock()
	if ctx.Err() == nil {
		o.logState(PartEvents, err)
	}
	if o.unanswered = nil; err != nil {
		o.unanswered, o.askAt = pod, now.Add(askAgainAfter)
	}
	return said, err
}

// askAgain repeats a request that failed: otherwise PartEvents would stay down until another probe
// fails.
func (o *Observer) askAgain(ctx context.Context, now time.Time) {
	if o.unanswered != nil && !now.Before(o.askAt) {
		_, _ = o.request(ctx, o.unanswered, now) // it reports the error
	}
}

// unseen returns the outcome for a failure that no socket has shown.
func (o *Observer) unseen(m *missed, said []Unhealthy, counts []Count, now time.Time) probe.Outcome {
	if h := m.doubt; h != nil && h.ev.Time.After(m.from.Add(-wordsSlack)) {
		// kubelet's counts were read before it had counted this failure.
		o.mu.Lock()
		defer o.mu.Unlock()
		out := o.outcome(h.ev, m.one, judged{why: h.why, counted: true})
		o.looked = looked{}
		o.stats.Uncounted--
		m.one.doubt = nil
		out.BootTime, out.CPU = 0, 0 // it comes from kubelet's counts
		return *out
	}
	d := event.ProbeOutcome{Feed: event.ProbeObserved, Verdict: event.VerdictOther, Cause: "kubelet counted a failure of unknown cause"}
	d.Evidence = append(d.Evidence, "kubelet's own count of failures")
	watched, connected := o.connected(m, counts)
	if w := latest(said, m); w != nil {
		if msg, ok := ReadMessage(m.spec.Handler, w.Message); ok {
			d.Verdict, d.Phase, d.Errno, d.Status, d.Said = msg.Verdict, msg.Phase, msg.Errno, msg.Status, msg.Said
			if msg.Cause != "" {
				d.Cause = msg.Cause
			} else if msg.Said != "" {
				d.Cause = "kubelet reported: " + display.Safe(msg.Said, 200)
			}
			d.Evidence = append(d.Evidence, "reported by kubelet's Event")
		}
	}
	switch {
	case watched && !connected && d.Phase != "answer" && d.Phase != "tls":
		d.Verdict = event.VerdictProberLate
		d.Cause = "kubelet opened no connection to " + portText(m.at) + " for it"
		d.Evidence = append(d.Evidence, "no connection from kubelet to "+m.at.String()+" began in the "+display.Duration(m.until.Sub(m.from))+" before")
	case watched && connected && d.Verdict == event.VerdictOther && d.Said == "":
		d.Cause = "kubelet counted a failure, but its connection was answered: a failure status, or TLS"
		d.Excluded = append(d.Excluded, "the connection: it was opened, and answered")
	case m.spec.Handler == probe.Exec && d.Verdict == event.VerdictOther:
		d.Verdict, d.Cause = event.VerdictExecFailed, "the program failed, or did not end in time"
	}
	if d.Verdict == event.VerdictProberLate {
		o.kubeletFacts(&d, now)
	} else if id := bareID(m.owners[0]); id != "" {
		f := o.vitals.look(id, now)
		f.fill(&d, "container")
	}
	return probe.Outcome{At: m.until, Detail: d}
}

// kubeletFacts adds facts about kubelet's own process.
func (o *Observer) kubeletFacts(d *event.ProbeOutcome, now time.Time) {
	f := o.vitals.look("", now)
	f.fill(d, "kubelet")
	d.Throttled, d.ThrottledIn = 0, 0 // these are about the container
	if p, err := o.cfg.FS.Pressure("cpu"); err == nil && p.Some >= 10 {
		waited := time.Duration(p.Some * float64(100*time.Millisecond))
		d.Evidence = append(d.Evidence, "tasks of the node waited for a CPU in "+display.Duration(waited)+" of the last 10 s")
	}
}

// connected reports whether connections of a probe are watched, and whether one of them began
// while it failed.
func (o *Observer) connected(m *missed, counts []Count) (watched, connected bool) {
	if !m.at.IsValid() || counts == nil {
		return false, false
	}
	o.mu.Lock()
	p := o.index.places[m.at]
	o.mu.Unlock()
	if p == nil {
		return false, false
	}
	for i := range counts {
		if counts[i].Name == p.name {
			watched = true
			connected = connected || counts[i].Started.After(m.from.Add(-m.spec.Timeout-wordsSlack))
		}
	}
	return watched, connected
}

// latest returns the newest Event about a probe from the time in which it failed.
func latest(said []Unhealthy, m *missed) *Unhealthy {
	var found *Unhealthy
	for i := range said {
		u := &said[i]
		if u.Container == m.key.Container && u.Kind == m.key.Kind && !u.At.Before(m.from.Add(-wordsSlack)) &&
			(found == nil || u.At.After(found.At)) {
			found = u
		}
	}
	return found
}
