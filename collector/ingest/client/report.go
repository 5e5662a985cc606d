package client

import "time"

// Path is where a report is posted to, on the agent's socket.
const Path = "/v1/status"

// KeyHeader is the HTTP header with a key of the sender's choice for its report:
// one that is sent again, with the same key, reports the same events. At most 64
// printable ASCII characters.
const KeyHeader = "Idempotency-Key"

// Bounds of a report. What is more is refused, but for messages, which are cut.
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

// Severity is that of an event.
type Severity string

// Severities: of what is worth to know, and of what is wrong.
const (
	Info Severity = "info"
	Warn Severity = "warn"
)

// Event is a problem that is over when it is reported.
type Event struct {
	Severity  Severity  `json:"severity"`
	Timestamp time.Time `json:"timestamp"` // zero or in the future: when it is received
	Reason    string    `json:"reason"`    // PascalCase
	Message   string    `json:"message"`
}

// ConditionStatus says whether the node is in a condition.
type ConditionStatus string

// Statuses. In JSON true and false stand for the first two as well.
const (
	True    ConditionStatus = "True"
	False   ConditionStatus = "False"
	Unknown ConditionStatus = "Unknown" // the daemon does not know
)

// Condition is a problem that lasts, or that there is none.
type Condition struct {
	Type       string          `json:"type"` // one of those that the agent's configuration has for the daemon
	Status     ConditionStatus `json:"status"`
	Transition time.Time       `json:"transition"` // since when; zero or in the future: when it is received
	Reason     string          `json:"reason"`     // PascalCase
	Message    string          `json:"message"`
}

// Status is a report.
type Status struct {
	Source string `json:"source"` // name of the daemon
	// ValidFor is how long its conditions count unless they are reported again, as
	// Go writes durations ("90s"). It is no field of node-problem-detector's; empty:
	// as the agent is configured.
	ValidFor   string      `json:"validFor,omitempty"`
	Events     []Event     `json:"events,omitempty"` // oldest first
	Conditions []Condition `json:"conditions,omitempty"`
}

// Field is what is to be said of one field of a report.
type Field struct {
	Field   string `json:"field"` // "events[3].reason"
	Message string `json:"message"`
}

// Answer is what the agent answers, whatever the HTTP status. Error is empty where
// the report was accepted, which it is as a whole or not at all.
type Answer struct {
	Error      string  `json:"error,omitempty"`
	Fields     []Field `json:"fields,omitempty"`   // what is wrong
	Warnings   []Field `json:"warnings,omitempty"` // what was changed, such as messages that were cut
	ValidFor   string  `json:"validFor,omitempty"`
	RetryAfter string  `json:"retryAfter,omitempty"` // of 429
}
