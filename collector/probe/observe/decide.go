package observe

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

const (
	// timeoutLess and timeoutMore are how much a connection that timed out may last less or more
	// than the timeout. It may be a little less because kubelet's clock began earlier.
	timeoutLess, timeoutMore = 60 * time.Millisecond, 250 * time.Millisecond
	// phaseSlack is how far from a multiple of its period a probe may begin: kubelet's worker
	// uses a ticker. A busy node would need more, but then the phase identifies no probe.
	phaseSlack = 100 * time.Millisecond
)

// connection is the connection whose probe is to be found.
type connection struct {
	started  time.Time
	duration time.Duration
	timedOut bool // the client gave up
}

// decide returns the index of the probe that a connection belongs to, and why that is certain. An
// empty reason means a guess. There must be at least one probe.
func decide(of []*course, c *connection) (int, string) {
	if len(of) == 1 {
		return 0, "the only probe here"
	}
	left := make([]int, 0, len(of))
	keep := func(reason string, fits func(*course) bool) string {
		from := left
		if len(from) == 0 {
			for i := range of {
				from = append(from, i)
			}
		}
		var fit []int
		for _, i := range from {
			if fits(of[i]) {
				fit = append(fit, i)
			}
		}
		left = from
		if len(fit) > 0 {
			left = fit
		}
		if len(left) == 1 && len(from) > 1 {
			return reason
		}
		return ""
	}
	if c.timedOut {
		if why := keep("only its timeout fits", func(k *course) bool {
			return c.duration > k.spec.Timeout-timeoutLess && c.duration < k.spec.Timeout+timeoutMore
		}); why != "" {
			return left[0], why
		}
	}
	if why := keep("the others are not due", func(k *course) bool {
		return k.started.IsZero() || c.started.Sub(k.started) > k.spec.Period/2
	}); why != "" {
		return left[0], why
	}
	// Prefer a probe observed in step with its period over those observed out of step.
	if why := keep("only it is in step", func(k *course) bool {
		return !k.started.IsZero() && outOfStep(k, c.started) <= phaseSlack
	}); why != "" {
		for i := range of {
			if i != left[0] && of[i].started.IsZero() {
				why = "" // this one may be in step as well
			}
		}
		return left[0], why
	}
	// Take the one observed longest ago: of two probes that begin together, the first failure
	// then goes to one, and the second to the other.
	oldest := left[0]
	for _, i := range left {
		if of[i].started.Before(of[oldest].started) {
			oldest = i
		}
	}
	return oldest, ""
}

// outOfStep returns how far a time is from a multiple of the period since the latest start.
func outOfStep(k *course, at time.Time) time.Duration {
	if k.spec.Period <= 0 {
		return 0
	}
	d := at.Sub(k.started) % k.spec.Period
	if d < 0 {
		d += k.spec.Period
	}
	return min(d, k.spec.Period-d)
}

// timedOut reports whether a verdict means that the client ended the connection on a timeout.
func timedOut(verdict string) bool {
	switch verdict {
	case event.VerdictTimeout, event.VerdictAcceptQueueFull, event.VerdictSilent, event.VerdictNotAccepted, event.VerdictSlow,
		event.VerdictLocalDrop, event.VerdictNeighborFailed:
		return true
	}
	return false
}

// slowOf returns the probes that a connection with the verdict slow may belong to, and whether
// the probe succeeded: a client that closes before its own timeout has its answer.
func slowOf(of []*course, duration time.Duration) (left []*course, ok bool) {
	var expired, early []*course
	for _, one := range of {
		switch over := duration - one.spec.Timeout; {
		case !answers(one.spec.Handler): // waits for no answer
		case over <= -timeoutLess:
			early = append(early, one)
		case over < timeoutMore:
			expired = append(expired, one)
		}
	}
	switch {
	case len(expired) > 0:
		return expired, false
	case len(early) > 0:
		return early, true
	}
	return of, false
}

// counts is how kubelet counts a failed connection.
type counts uint8

const (
	countsFailure counts = iota
	countsSuccess        // it already had what it wanted
	countsMaybe          // the answer may have been complete, or kubelet retries without counting
)

// answers reports whether a probe needs more than a connection, so that it may fail even though
// its connection succeeded.
func answers(h probe.Handler) bool { return h != probe.TCP }

// meaning returns how kubelet counts a failed connection of a probe.
func meaning(h probe.Handler, s *event.SockFailData) counts {
	answered := s.Verdict == event.VerdictSlow || s.Verdict == event.VerdictReset && s.Received > 0
	switch {
	case h == probe.TCP && s.Phase == "established":
		return countsSuccess // a TCP probe only needs the connection
	case answered && (h == probe.HTTP || h == probe.HTTPS):
		// If the connection ends within the body, kubelet treats that as an error, not a failure.
		// A reset may also follow a complete answer.
		return countsMaybe
	}
	return countsFailure
}
