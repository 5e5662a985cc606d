package observe

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

const (
	// timeoutSlack is how much longer than the timeout a connection lives that it ended,
	// and a little less: kubelet's clock began earlier.
	timeoutLess, timeoutMore = 60 * time.Millisecond, 250 * time.Millisecond
	// phaseSlack is how far from a multiple of its period a probe begins: kubelet's worker
	// keeps to a ticker. A busy node needs more, but then nothing can be reported by it.
	phaseSlack = 100 * time.Millisecond
)

// candidate is what is known of one of several probes at a place.
type candidate struct {
	timeout, period time.Duration
	started         time.Time // of its latest connection; zero: none was seen
}

// connection is what is known of the connection whose probe is looked for.
type connection struct {
	started  time.Time
	duration time.Duration
	timedOut bool // its opener gave up
}

// decide returns whose connection it was, by its number, and why that is sure; empty: it is
// a guess. There is at least one candidate.
func decide(of []candidate, c *connection) (int, string) {
	if len(of) == 1 {
		return 0, "the only probe here"
	}
	left := make([]int, 0, len(of))
	keep := func(reason string, fits func(*candidate) bool) string {
		from := left
		if len(from) == 0 {
			for i := range of {
				from = append(from, i)
			}
		}
		var fit []int
		for _, i := range from {
			if fits(&of[i]) {
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
		if why := keep("only its timeout fits", func(k *candidate) bool {
			return c.duration > k.timeout-timeoutLess && c.duration < k.timeout+timeoutMore
		}); why != "" {
			return left[0], why
		}
	}
	if why := keep("the others are not due", func(k *candidate) bool {
		return k.started.IsZero() || c.started.Sub(k.started) > k.period/2
	}); why != "" {
		return left[0], why
	}
	// Who has been seen in step with its period, against who has been seen out of step.
	if why := keep("only it is in step", func(k *candidate) bool {
		return !k.started.IsZero() && outOfStep(k, c.started) <= phaseSlack
	}); why != "" {
		for i := range of {
			if i != left[0] && of[i].started.IsZero() {
				why = "" // that one may be in step as well
			}
		}
		return left[0], why
	}
	// The one that was seen longest ago: of two that begin together the first failure is
	// one's, and the second the other's.
	oldest := left[0]
	for _, i := range left {
		if of[i].started.Before(of[oldest].started) {
			oldest = i
		}
	}
	return oldest, ""
}

// outOfStep is how far a time is from a multiple of the period since the latest start.
func outOfStep(k *candidate, at time.Time) time.Duration {
	if k.period <= 0 {
		return 0
	}
	d := at.Sub(k.started) % k.period
	if d < 0 {
		d += k.period
	}
	return min(d, k.period-d)
}

// timedOut reports whether a verdict means that the client's timeout ended the connection.
func timedOut(verdict string) bool {
	switch verdict {
	case event.VerdictTimeout, event.VerdictAcceptQueueFull, event.VerdictSilent, event.VerdictNotAccepted, event.VerdictSlow,
		event.VerdictLocalDrop, event.VerdictNeighborFailed:
		return true
	}
	return false
}

// counts is what kubelet makes of a connection that failed.
type counts uint8

const (
	countsFailure counts = iota
	countsSuccess        // it got what it wanted before
	countsMaybe          // the answer may have been whole, or kubelet tries again without counting
)

// answers reports whether a probe asks for more than a connection, so that one that went
// well may be a failure still.
func answers(h probe.Handler) bool { return h != probe.TCP }

// meaning is what a failed connection means for a probe.
func meaning(h probe.Handler, s *event.SockFailData) counts {
	answered := s.Verdict == event.VerdictSlow || s.Verdict == event.VerdictReset && s.Received > 0
	switch {
	case h == probe.TCP && s.Phase == "established":
		return countsSuccess // it only wanted the connection
	case answered && (h == probe.HTTP || h == probe.HTTPS):
		// What ends in the middle of the body is an error of the probe, no failure; and a
		// reset may come behind an answer that was whole.
		return countsMaybe
	}
	return countsFailure
}
