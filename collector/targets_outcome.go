package collector

import (
	"errors"
	"time"

	"github.com/kernosis/kernosis/bpf"
)

// TargetOutcome is how connections to a target went that have ended.
type TargetOutcome struct {
	Target Target
	// Succeeded and Failed count connections since the target is watched, for
	// whichever source it was first, and also across a restart of the agent that
	// leaves no time without it. One whose first SYN was not answered, and that went
	// well then, is in both. Of more than 8192 connections at a time some are missed.
	Succeeded, Failed uint64
	// Started is when the latest of them was opened, zero where there is none; Took
	// how long it was until it failed or the first side closed it; RTT the smoothed
	// round trip, zero where it was never established.
	Started   time.Time
	Took, RTT time.Duration
}

// count has outcomes read from a stem that runs, until it is called with nil.
func (t *Targets) count(read func(id uint32) (bpf.SockOutcome, bool, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes = read
}

// errNotCounted: no program counts connections.
var errNotCounted = errors.New("connections to targets can't be seen")

// outcomesOf returns the outcomes of one source's targets, in its order. Those that are
// not in force yet have none. wall turns a time since boot into one of the clock.
func (t *Targets) outcomesOf(source string, wall func(time.Duration) time.Time) ([]TargetOutcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outcomes == nil {
		return nil, errNotCounted
	}
	targets := t.sources[source]
	out := make([]TargetOutcome, len(targets))
	for i, target := range targets {
		out[i].Target = target
		id, inForce := t.byKey[target.key()]
		if !inForce {
			continue
		}
		o, watched, err := t.outcomes(id)
		if err != nil {
			return nil, err
		}
		if !watched {
			continue
		}
		out[i].Succeeded, out[i].Failed = o.Succeeded, o.Failed
		if o.StartNS > 0 {
			out[i].Started = wall(time.Duration(o.StartNS))
		}
		out[i].Took = time.Duration(o.TookNS)
		out[i].RTT = time.Duration(o.RTTMicros) * time.Microsecond
	}
	return out, nil
}
