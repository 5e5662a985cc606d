package lease

import (
	"time"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// A renewal ends in one of these ways, or fails as a write of conditions does. Then NodeMissing means
// that there is no Node to make the Lease for, and Conflict that several came in a row.
const (
	Renewed   conditions.Outcome = "renewed"
	Created   conditions.Outcome = "created"
	Unhealthy conditions.Outcome = "unhealthy" // nothing was sent: the agent does not do its work
)

// Outcomes returns all, for a table of counters.
func Outcomes() []conditions.Outcome {
	return append([]conditions.Outcome{Renewed, Created, Unhealthy}, conditions.Outcomes()[1:]...)
}

// Stats are counted since the Keeper was made.
type Stats struct {
	Renewals map[conditions.Outcome]uint64 // one each time that a renewal was due or tried again
	Requests uint64                        // sent for them, reads among them
	Reads    uint64                        // of the Lease: at start, and after each conflict
	Refused  uint64                        // types left out at the last renewal, as they can't be ours

	Superseded  bool      // another agent of this node has taken the Lease
	Drained     bool      // the Lease says that we have ended
	LastRenewed time.Time // zero: never
	LastError   string    // of the last renewal; empty: it succeeded
}
