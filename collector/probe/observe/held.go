package observe

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

const (
	// holdFor is how long an outcome waits for kubelet's counts at most, so that the Event still
	// comes in time.
	holdFor = time.Second
	// maxHeld is how many outcomes may wait: a node's probes that share a port, all failing at
	// once.
	maxHeld = 128
	// settle is how long after a connection's end kubelet may take to count it.
	settle = 150 * time.Millisecond
)

// held is a connection, and the probe that it most likely belongs to. It is held if that is not
// certain, or if kubelet may not count it.
type held struct {
	ev    *event.Event
	of    []*course
	guess int    // index in of
	why   string // why the probe is certain; empty: it is a guess
	conn  connection
	ok    bool
	maybe bool // kubelet may count it differently

	from, until time.Time // if held: kubelet has counted it by then; it waits no longer than that
}

// hold keeps a connection until kubelet's counts are available. It returns false if they can't be
// available in time. A connection that kubelet may not count waits for them in any case.
func (o *Observer) hold(h *held, now time.Time) bool {
	if !o.polling {
		return false
	}
	one := h.of[h.guess]
	h.from, h.until = now.Add(settle), now.Add(holdFor)
	at := later(h.from, o.soonest(now, one))
	if h.maybe {
		h.until = at.Add(2 * askFor)
	} else if at.After(h.until.Add(-settle)) {
		// Poll in time for the next failure.
		next := later(h.conn.started.Add(one.spec.Period+h.conn.duration+2*settle), o.polled.Add(pollAtMost))
		if next.Before(o.polled.Add(pollEvery * 3 / 2)) {
			o.pollAt = next
		}
		return false
	}
	if len(o.held) >= maxHeld {
		o.stats.Overflowed++
		return h.maybe // if kubelet counts it, its counts show it
	}
	h.ev = h.ev.Clone()
	o.held = append(o.held, h)
	o.stats.Held++
	if at.Before(o.pollAt) {
		o.pollAt = at
	}
	o.poke()
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// release decides on held connections: those that kubelet's new counts cover, and those that have
// waited long enough.
func (o *Observer) release(now time.Time, counted bool) {
	var left []*held
	waiting := o.held
	o.held = nil
	for _, h := range waiting {
		fresh := counted && !now.Before(h.from)
		if !fresh && now.Before(h.until) {
			left = append(left, h)
			continue
		}
		o.settle(h, fresh)
	}
	o.held = append(left, o.held...)
	for _, h := range left {
		if at := later(h.from, o.soonest(now, h.of[h.guess])); at.Before(o.pollAt) {
			o.pollAt = at
		}
	}
}

const (
	// fastest is the shortest interval at which kubelet's counts are polled while a probe fails.
	// fastRate (per second) and fastBurst limit the polls beyond the usual ones.
	fastest             = time.Second
	fastRate, fastBurst = 0.25, 20
)

// soonest returns when kubelet's counts may be polled next if the probes in also fail too.
func (o *Observer) soonest(now time.Time, also ...*course) time.Time {
	return o.polled.Add(min(pollAtMost, o.pace(now, also...)))
}

// pace returns how often kubelet's counts are polled: while a probe fails, as often as it is
// made, so that its last failure is known before its container is replaced.
func (o *Observer) pace(now time.Time, also ...*course) time.Duration {
	every := pollEvery
	for _, one := range also {
		every = min(every, max(one.spec.Period, fastest))
	}
	for _, one := range o.index.courses {
		if one.failing || !one.missing.IsZero() {
			every = min(every, max(one.spec.Period, fastest))
		}
	}
	if every < pollAtMost && o.fast.TokensAt(now) < 1 {
		return pollAtMost
	}
	return every
}

// waitingFor returns how many failed connections of a probe are held.
func (o *Observer) waitingFor(one *course) (n uint64) {
	for _, h := range o.held {
		if !h.ok && h.of[h.guess] == one {
			n++
		}
	}
	return n
}

// settle reports a held connection to the Manager.
func (o *Observer) settle(h *held, counted bool) {
	if counted && !h.ok {
		var more []*course
		for _, one := range h.of {
			if one.known && one.excess() > 0 {
				more = append(more, one)
			}
		}
		switch {
		case len(more) == 0 && h.maybe:
			o.stats.Uncounted++
			h.of[h.guess].doubt = h
			return // kubelet did not count it
		case len(more) == 1:
			h.guess, h.why = slices.Index(h.of, more[0]), "kubelet has counted its failure"
		case len(more) > 1 && !slices.Contains(more, h.of[h.guess]):
			h.guess = slices.Index(h.of, more[0])
		}
	}
	if counted && h.ok && h.maybe && !slices.ContainsFunc(h.of, func(c *course) bool { return c.succeededNow }) {
		o.stats.Uncounted++
		return // it was a failure, or its success is counted later and reported then
	}
	if counted && h.ok && h.why == "" {
		// Which probe succeeded matters only for those that were failing.
		for i, one := range h.of {
			if one.failing && one.succeededNow {
				h.guess, h.why = i, "kubelet has counted its success"
				break
			}
		}
	}
	if h.why == "" {
		o.stats.Guessed++
	}
	o.handFirst(h, counted && h.maybe)
	o.looked = looked{}
}
