package lease

import "time"

// A crowd is more agents of a zone than minCrowd and shareCrowd of it that miss renewals
// together: more likely the API server is short of CPU, or was away, than that many agents
// stopped at once.
const (
	minCrowd   = 10
	shareCrowd = 0.05
	// crowdPatience is how many periods an agent has to renew its Lease beside a crowd.
	crowdPatience = 3
	// lateShare of its period without a renewal makes an agent late: two renewals.
	lateShare = 0.6
	// recentPeriods is for how many periods an agent counts towards a crowd: one that was
	// removed long ago has nothing to do with the others.
	recentPeriods = 10
)

// Late reports whether renewals of a Lease are missing: nothing was heard for quiet, and
// the agent counts as silent after period.
func Late(quiet, period time.Duration) bool { return float64(quiet) >= lateShare*float64(period) }

// Crowd follows whether the agents of a zone go quiet together. The zero value has seen none.
type Crowd struct{ until time.Time }

// InCrowd reports whether an agent counts towards a crowd.
func InCrowd(quiet, period time.Duration) bool {
	return Late(quiet, period) && quiet < recentPeriods*period
}

// See takes how many agents a zone has, and how many of them are [InCrowd]. A crowd is
// remembered for a period, as agents come back one after the other.
func (c *Crowd) See(agents, quiet int, now time.Time, period time.Duration) {
	if quiet > minCrowd && float64(quiet) > shareCrowd*float64(agents) {
		c.until = now.Add(period)
	}
}

// Patience returns after how many periods without a renewal an agent is silent.
func (c *Crowd) Patience(now time.Time) int {
	if now.Before(c.until) {
		return crowdPatience
	}
	return 1
}
