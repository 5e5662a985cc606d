package lease

import (
	"time"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Outcome is how a renewal ended.
type Outcome string

// Outcomes. All but Renewed and Created are tried again.
const (
	Renewed      Outcome = "renewed"
	Created      Outcome = "created"
	Conflict             = Outcome(conditions.Conflict) // several times in a row
	Throttled            = Outcome(conditions.Throttled)
	ServerError          = Outcome(conditions.ServerError)
	Unauthorized         = Outcome(conditions.Unauthorized)
	Forbidden            = Outcome(conditions.Forbidden)
	NodeMissing          = Outcome(conditions.NodeMissing) // a Lease is made for a Node that exists
	Refused              = Outcome(conditions.Refused)
	TimedOut             = Outcome(conditions.TimedOut)
	Unreachable          = Outcome(conditions.Unreachable)
	Unhealthy    Outcome = "unhealthy" // nothing was sent: the agent does not do its work
)

// Outcomes returns all, for a table of counters.
func Outcomes() []Outcome {
	return []Outcome{Renewed, Created, Conflict, Throttled, ServerError, Unauthorized, Forbidden, NodeMissing, Refused, TimedOut, Unreachable, Unhealthy}
}

// Stats are counted since the Keeper was made.
type Stats struct {
	Renewals map[Outcome]uint64 // one each time that a renewal was due or tried again
	Requests uint64             // sent for them, reads among them
	Reads    uint64             // of the Lease: at start, and after each conflict
	Refused  uint64             // types left out at the last renewal, as they can't be ours

	Superseded  bool      // another agent of this node has taken the Lease
	Drained     bool      // the Lease says that we have ended
	LastRenewed time.Time // zero: never
	LastError   string    // of the last renewal; empty: it succeeded
}
