package collector

import (
	"errors"
	"time"

	"github.com/kernosis/kernosis/bpf"
)

// TargetOutcome counts the connections to a target that have ended.
type TargetOutcome struct {
	Target Target
	// Succeeded and Failed count connections since the target is watched, by whichever source was
	// first. They survive a restart of the agent if no time passes without one. A connection whose
	// first SYN was not answered and that succeeded later counts in both. If there are more than
	// 8192 connections at a time, some are missed.
	Succeeded, Failed uint64
	// Started is when the latest of them was opened, zero if there is none. Took is the time until
	// it failed or the first side closed it. RTT is the smoothed round trip, zero if it was never
	// established.
	Started   time.Time
	Took, RTT time.Duration
}

// count sets the function that reads outcomes from a running stem; nil: there is none.
func (t *Targets) count(read func(id uint32) (bpf.SockOutcome, bool, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes = read
}

// errNotCounted: no program counts connections.
var errNotCounted = errors.New("can't detect connections to targets")

// outcomesOf returns the outcomes of one source's targets, in its order. Targets that are not in
// force yet have none. wall converts a time since boot into wall clock time.
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
