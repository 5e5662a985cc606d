package lease

import "time"

// There is a crowd if more than minCrowd agents of a zone, and more than shareCrowd of all its
// agents, miss renewals together. Then it is more likely that the API server is short of CPU, or
// was unavailable, than that so many agents stopped at once.
const (
	minCrowd   = 10
	shareCrowd = 0.05
	// crowdPatience is the number of periods within which an agent must renew its Lease during a
	// crowd.
	crowdPatience = 3
	// lateShare is the share of its period without a renewal after which an agent is late: two
	// renewals.
	lateShare = 0.6
	// recentPeriods is how many periods an agent counts towards a crowd: an agent that was
	// removed long ago has nothing to do with the others.
	recentPeriods = 10
)

// Late reports whether renewals of a Lease are missing. quiet is the time since the last one,
// period the time after which the agent counts as silent.
func Late(quiet, period time.Duration) bool { return float64(quiet) >= lateShare*float64(period) }

// Crowd detects whether the agents of a zone go quiet together. The zero value is ready to use.
type Crowd struct{ until time.Time }

// InCrowd reports whether an agent counts towards a crowd.
func InCrowd(quiet, period time.Duration) bool {
	return Late(quiet, period) && quiet < recentPeriods*period
}

// See records how many agents a zone has, and how many of them are [InCrowd]. A crowd is
// remembered for a period, because agents come back one after the other.
func (c *Crowd) See(agents, quiet int, now time.Time, period time.Duration) {
	if quiet > minCrowd && float64(quiet) > shareCrowd*float64(agents) {
		c.until = now.Add(period)
	}
}

// Patience returns the number of periods without a renewal after which an agent is silent.
func (c *Crowd) Patience(now time.Time) int {
	if now.Before(c.until) {
		return crowdPatience
	}
	return 1
}
