package lease

import (
	"time"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Outcomes of renewals besides those of package conditions. NodeMissing means that there is no
// Node to create the Lease for, Conflict that several conflicts came in a row.
const (
	Renewed   conditions.Outcome = "renewed"
	Created   conditions.Outcome = "created"
	Unhealthy conditions.Outcome = "unhealthy" // nothing was sent: the agent does not work
)

// Outcomes returns all outcomes, for a table of counters.
func Outcomes() []conditions.Outcome {
	return append([]conditions.Outcome{Renewed, Created, Unhealthy}, conditions.Outcomes()[1:]...)
}

// Stats are the counters since the Keeper was created.
type Stats struct {
	Renewals map[conditions.Outcome]uint64 // counted each time a renewal was due or retried
	Requests uint64                        // sent for them, including reads
	Reads    uint64                        // of the Lease: at start, and after each conflict
	Refused  uint64                        // types left out at the last renewal, because the agent must not set them

	Superseded  bool      // another agent of this node has taken the Lease
	Drained     bool      // the Lease is marked as draining
	LastRenewed time.Time // zero: never
	LastError   string    // of the last renewal; empty: it succeeded
}
