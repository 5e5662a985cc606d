package problem

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// State is the state of a problem in its life cycle.
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

// Severities returns all severities, lowest first.
func Severities() []Severity { return []Severity{Info, Warning, Critical} }

// Rank orders severities: 1 is the lowest, 0 is an unknown severity.
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
	Pod          string         `json:"pod,omitempty"` // UID of the affected pod, as in the cgroup's name; empty: no pod
	FirstSeen    time.Time      `json:"firstSeen"`
	LastSeen     time.Time      `json:"lastSeen"`
	Since        time.Time      `json:"since"`                  // when State was entered
	Count        uint64         `json:"count"`                  // matching events in this episode
	Evidence     []*event.Event `json:"evidence,omitempty"`     // bounded: first and latest
	SuppressedBy string         `json:"suppressedBy,omitempty"` // rule of the cause that hides it
	MutedUntil   time.Time      `json:"mutedUntil,omitzero"`    // muted: not announced before this time, but it continues
}

// Status is a node condition's status, as in the Kubernetes API.
type Status string

// Condition statuses. Unknown: a source that could detect the fault is not working.
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// ReasonSourceNotStarted is the reason of a condition that is Unknown because no source has
// reported yet that it is up. This lasts for moments after each start of the agent.
const ReasonSourceNotStarted = "SourceNotStarted"

// Condition is the node's roll-up over all problems of one condition type.
type Condition struct {
	Type           string    `json:"type"`
	Status         Status    `json:"status"`
	Reason         string    `json:"reason"`
	Message        string    `json:"message"`
	LastTransition time.Time `json:"lastTransition"`
}

// Transition is one change the engine reports. Exactly one of Problem, Condition and Mute is set.
type Transition struct {
	// Problem changed its state, or is a temporary problem that occurred (again).
	Problem *Problem `json:"problem,omitempty"`
	// Times is how often that temporary problem occurred; 0: once.
	Times uint64 `json:"times,omitempty"`
	// Again means that Problem still fires, but a cause or a mute started or stopped hiding it.
	Again bool `json:"again,omitempty"`
	// Condition changed status, reason or message.
	Condition *Condition `json:"condition,omitempty"`
	// Mute began or ended.
	Mute *MuteChange `json:"mute,omitempty"`
}

// Occurrences returns how often the problem occurred.
func (t *Transition) Occurrences() uint64 { return max(t.Times, 1) }
