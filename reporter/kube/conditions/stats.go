package conditions

import "time"

// Outcome is how a write ended.
type Outcome string

// Outcomes. All but Written are tried again.
const (
	Written      Outcome = "written"
	Conflict     Outcome = "conflict"     // 409
	Throttled    Outcome = "throttled"    // 429
	ServerError  Outcome = "server_error" // 5xx
	Unauthorized Outcome = "unauthorized" // 401: the token has expired; it is read again
	Forbidden    Outcome = "forbidden"    // 403: RBAC or a policy
	NodeMissing  Outcome = "node_missing" // 404
	Refused      Outcome = "refused"      // another 4xx
	TimedOut     Outcome = "timeout"
	Unreachable  Outcome = "unreachable" // no connection, or one that was cut
)

// Outcomes returns all, for a table of counters; the first is Written.
func Outcomes() []Outcome {
	return []Outcome{Written, Conflict, Throttled, ServerError, Unauthorized, Forbidden, NodeMissing, Refused, TimedOut, Unreachable}
}

// Stats are counted since the Patcher was made.
type Stats struct {
	Writes     map[Outcome]uint64 // patches sent, heartbeats among them
	Heartbeats uint64             // patches taken that had nothing but the heartbeat
	Bytes      uint64             // of the bodies of all patches sent
	Retries    uint64             // patches sent because the one before has failed
	Flips      uint64             // conditions of ours that others wrote over or removed
	Contested  uint64             // times that a type was yielded
	Removed    uint64             // types deleted because nobody sets them any more
	Refused    uint64             // conditions given to Set that can't be ours
	Trimmed    uint64             // reasons and messages that had to be changed
	Watches    uint64             // watches that the API has opened

	Yielded    []string  // types that are left to others now
	LastAcked  time.Time // of the last write that was taken; zero: none
	LastError  string    // of the last write, empty when it was taken
	Pending    bool      // the API does not have what was set last
	NodeExists bool      // as far as known
}
