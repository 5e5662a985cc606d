package agent

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// unwritten has the changes of one condition that the API server does not have yet, so that the
// latency of each write counts from the first change that it has.
type unwritten struct {
	has  problem.Condition // what the API server has acknowledged last
	list []change          // oldest first, at most maxUnwritten
}

// change is a change of a condition.
type change struct {
	to    problem.Condition
	fault time.Time // kernel's time of the event behind it; zero: it was not a kernel event
}

// maxUnwritten bounds the changes of one condition, each of up to 1 KiB. Only the latest of further
// ones is kept.
const maxUnwritten = 16

func (u *unwritten) add(c problem.Condition, fault time.Time) {
	c.LastTransition = time.Time{}
	switch n := len(u.list); {
	case c == u.has:
		u.list = u.list[:0] // there is nothing to write any more
	case n == maxUnwritten && u.list[n-1].to.Status == c.Status:
		u.list[n-1].to = c
	case n == maxUnwritten:
		u.list[n-1] = change{c, fault}
	default:
		u.list = append(u.list, change{c, fault})
	}
}

// ack records that the API server has a condition. It returns the time of the first fault since
// which the condition has this status; zero: it is known already, or there was none.
func (u *unwritten) ack(c problem.Condition) (fault time.Time) {
	c.LastTransition = time.Time{}
	u.has = c
	for i, last := range slices.Backward(u.list) {
		if last.to != c {
			continue
		}
		for _, earlier := range slices.Backward(u.list[:i+1]) {
			if earlier.to.Status != c.Status {
				break
			}
			if !earlier.fault.IsZero() {
				fault = earlier.fault
			}
		}
		u.list = slices.Delete(u.list, 0, i+1)
		break
	}
	return fault
}
