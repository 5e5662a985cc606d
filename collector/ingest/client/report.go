package client

import "time"

// Path is the HTTP path of reports on the agent's socket.
const Path = "/v1/status"

// KeyHeader is the HTTP header for a key that the sender chooses for its report: a retry with the
// same key reports the same events. At most 64 printable ASCII characters.
const KeyHeader = "Idempotency-Key"

// Bounds of a report. Larger reports are refused, except that messages are cut.
const (
	MaxBody       = 256 << 10
	MaxEvents     = 100
	MaxConditions = 16 // as many as a daemon may have
	MaxMessage    = 1024
	MaxReason     = 128
	MaxKey        = 64
)

// MinValid and MaxValid bound Status.ValidFor.
const (
	MinValid = 5 * time.Second
	MaxValid = time.Hour
)

// Severity is the severity of an event.
type Severity string

// The severities: Info for notable events, Warn for problems.
const (
	Info Severity = "info"
	Warn Severity = "warn"
)

// Event is a problem that happened at one point in time.
type Event struct {
	Severity  Severity  `json:"severity"`
	Timestamp time.Time `json:"timestamp"` // zero or in the future: when it is received
	Reason    string    `json:"reason"`    // PascalCase
	Message   string    `json:"message"`
}

// ConditionStatus is whether the node is in a condition.
type ConditionStatus string

// Statuses. In JSON, true and false are accepted for the first two as well.
const (
	True    ConditionStatus = "True"
	False   ConditionStatus = "False"
	Unknown ConditionStatus = "Unknown" // the daemon can't tell
)

// Condition is the state of a lasting problem: whether it exists or not.
type Condition struct {
	Type       string          `json:"type"` // one of the types configured in the agent for the daemon
	Status     ConditionStatus `json:"status"`
	Transition time.Time       `json:"transition"` // since when; zero or in the future: when it is received
	Reason     string          `json:"reason"`     // PascalCase
	Message    string          `json:"message"`
}

// Status is a report.
type Status struct {
	Source string `json:"source"` // name of the daemon
	// ValidFor is how long its conditions are valid unless they are reported again, as a Go duration
	// ("90s"); empty: as configured in the agent. It is not in node-problem-detector's Status.
	ValidFor   string      `json:"validFor,omitempty"`
	Events     []Event     `json:"events,omitempty"` // oldest first
	Conditions []Condition `json:"conditions,omitempty"`
}

// Field is a message about one field of a report.
type Field struct {
	Field   string `json:"field"` // "events[3].reason"
	Message string `json:"message"`
}

// Answer is the agent's answer, whatever the HTTP status. Error is empty if the report was
// accepted; a report is accepted as a whole or not at all.
type Answer struct {
	Error      string  `json:"error,omitempty"`
	Fields     []Field `json:"fields,omitempty"`   // mistakes
	Warnings   []Field `json:"warnings,omitempty"` // fields that were changed, such as messages that were cut
	ValidFor   string  `json:"validFor,omitempty"`
	RetryAfter string  `json:"retryAfter,omitempty"` // for status 429
}
