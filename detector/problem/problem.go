package problem

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// State is where a problem is in its life.
type State string

// A problem moves Pending → Firing → Resolved. Pending is used only by rules
// with a "for" or a threshold; a temporary problem (no condition) is Firing
// once for each matching event and keeps counting until it is quiet.
const (
	Pending  State = "pending"
	Firing   State = "firing"
	Resolved State = "resolved"
)

// Severity orders problems for display and triggers.
type Severity string

// Severities, lowest first.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Severities returns all, lowest first.
func Severities() []Severity { return []Severity{Info, Warning, Critical} }

// Rank orders severities: 1 is the lowest, 0 is none of them.
func (s Severity) Rank() int { return slices.Index(Severities(), s) + 1 }

// Problem is one rule being true for one subject (the values of its groupBy).
type Problem struct {
	Rule         string         `json:"rule"`
	Fault        string         `json:"fault"`               // identity across sources
	Group        string         `json:"group"`               // joined groupBy values; with Rule the key
	Condition    string         `json:"condition,omitempty"` // empty: temporary
	Reason       string         `json:"reason"`
	Message      string         `json:"message"`
	Severity     Severity       `json:"severity"`
	Doc          string         `json:"doc,omitempty"`
	State        State          `json:"state"`
	Subject      string         `json:"subject"`
	Pod          string         `json:"pod,omitempty"` // UID of the pod it is about, as in the control group's name; empty: about none
	FirstSeen    time.Time      `json:"firstSeen"`
	LastSeen     time.Time      `json:"lastSeen"`
	Since        time.Time      `json:"since"`                  // when State was entered
	Count        uint64         `json:"count"`                  // matching events in this episode
	Evidence     []*event.Event `json:"evidence,omitempty"`     // bounded: first and latest
	SuppressedBy string         `json:"suppressedBy,omitempty"` // rule of the cause that hides it
	MutedUntil   time.Time      `json:"mutedUntil,omitzero"`    // it goes on, but is not announced before
}

// Status is a node condition's status, as in the Kubernetes API.
type Status string

// Condition statuses. Unknown: a source that would see the fault can't.
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// ReasonSourceNotStarted is that of a condition that is Unknown because no source has
// said yet that it sees: for moments after each start of the agent.
const ReasonSourceNotStarted = "SourceNotStarted"

// Condition is the node's roll-up over all problems of one condition type.
type Condition struct {
	Type           string    `json:"type"`
	Status         Status    `json:"status"`
	Reason         string    `json:"reason"`
	Message        string    `json:"message"`
	LastTransition time.Time `json:"lastTransition"`
}

// Transition is one change the engine reports. Exactly one of Problem,
// Condition and Mute is set.
type Transition struct {
	// Problem changed its state, or is a temporary one that occurred (again).
	Problem *Problem `json:"problem,omitempty"`
	// Times is how often that temporary problem occurred; 0: once.
	Times uint64 `json:"times,omitempty"`
	// Again says that Problem fires as before: a cause or a mute begins or ceases to hide it.
	Again bool `json:"again,omitempty"`
	// Condition changed status, reason or message.
	Condition *Condition `json:"condition,omitempty"`
	// Mute began or is over.
	Mute *MuteChange `json:"mute,omitempty"`
}

// Occurrences returns how often its problem occurred.
func (t *Transition) Occurrences() uint64 { return max(t.Times, 1) }
