package conditions

import "time"

// Outcome is how a write ended.
type Outcome string

// The outcomes. All but Written are retried.
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
	Unreachable  Outcome = "unreachable" // no connection, or a broken one
)

// Outcomes returns all outcomes, for a table of counters; the first is Written.
func Outcomes() []Outcome {
	return []Outcome{Written, Conflict, Throttled, ServerError, Unauthorized, Forbidden, NodeMissing, Refused, TimedOut, Unreachable}
}

// Stats are the counters since the Patcher was created.
type Stats struct {
	Writes     map[Outcome]uint64 // patches sent, including heartbeats
	Heartbeats uint64             // accepted patches that had only the heartbeat
	Bytes      uint64             // of the bodies of all patches sent
	Retries    uint64             // patches sent because the previous one failed
	Flips      uint64             // conditions of ours that others overwrote or removed
	Contested  uint64             // times that a type was yielded
	Removed    uint64             // types deleted because they are no longer set
	Refused    uint64             // conditions given to Set that the agent must not set
	Trimmed    uint64             // reasons and messages that had to be changed
	Watches    uint64             // watches that the API has opened

	Yielded    []string  // types that are yielded now
	LastAcked  time.Time // of the last accepted write; zero: none
	LastError  string    // of the last write; empty if it was accepted
	Pending    bool      // the API does not have what was set last
	NodeExists bool      // as far as known
}
