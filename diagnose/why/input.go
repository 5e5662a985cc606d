package why

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// Input is what is known. Text in it may be anybody's: Build escapes and bounds it.
type Input struct {
	Subject Subject
	// Now is the time of the answer; times are shown in its location.
	Now time.Time
	// Since is how long ago something may have ended and is still reported.
	Since time.Duration

	Read       []string // what was read, for people: "journal of /var/lib/kernosis"
	Unread     []Unread
	Problems   []Problem
	Conditions []problem.Condition // of the node
	Diagnoses  []Diagnosis
	Events     []Event // of others than the agent
	Containers []Container
	Blind      []Blind
	// Pods are names by UID, of those that texts may name by it.
	Pods map[string]string
	// Advice returns what a page says is to be done; nil: nobody knows.
	Advice func(page string) []string
}

// Kinds of subjects.
const (
	KindPod  = "pod"
	KindNode = "node"
)

// Subject is what is asked about.
type Subject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"` // only this one
	Node      string `json:"node,omitempty"`      // of a pod
	Phase     string `json:"phase,omitempty"`     // of a pod
	// Reason and Message are why a pod is in its phase: Evicted, Unschedulable.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// String is "shop/web-1" or a node's name.
func (s *Subject) String() string {
	switch {
	case s.Kind == KindNode:
		return "node " + s.Name
	case s.Namespace != "":
		return s.Namespace + "/" + s.Name
	}
	return "pod " + s.Name
}

// Where a problem was read.
const (
	FromJournal = "journal"
	FromAPI     = "API"
)

// Problem is one rule's, as far as it is known. From the API it is a series of occurrences:
// there nobody says when it ends.
type Problem struct {
	From         string
	Rule, Fault  string // empty: not known
	Reason       string
	Message      string
	Condition    string
	Severity     problem.Severity
	Subject      string // as the rule names it
	Pod          string // UID
	Lasts        bool
	First, Last  time.Time
	Count        uint64
	SuppressedBy string // rule of its cause
	MutedUntil   time.Time
	MutedWhy     string
	NextProbe    time.Time // zero: not known
	event.Facts
}

// Diagnosis is one that was made.
type Diagnosis struct {
	From             string
	Namespace, Name  string // Namespace is empty for one that only the node knows
	Set, Rule        string // Rule of the problem it was made for; empty: made otherwise
	Reason           string // of that problem
	Subject          string
	PodUID           string
	Pod              string    // namespace/name
	Ended            time.Time // zero: it goes on, or was interrupted
	Started          time.Time
	Phase            string
	Verdict, Message string // empty: no cause was found
	Path             []string
	Excluded         []Finding
	CouldNotLook     []Finding
	Repairs          []Repair // due, made or not
}

// Finding is a cause with its evidence.
type Finding struct{ Reason, Message string }

// Repair is what became of one.
type Repair struct {
	Operation, State, Message string
	Held                      bool // it was not made, and could have been
}

// Event is one of somebody else, such as kubelet.
type Event struct {
	Last      time.Time
	Count     int
	Warning   bool
	Reason    string
	Message   string
	By        string
	Container string // empty: of none, or not known
}

// Container is a container's status.
type Container struct {
	Name, ID         string // ID without the runtime
	Running, Ready   bool
	Since            time.Time // it runs
	Waiting, Message string    // why it waits
	Restarts         int
	Ended            *Ending // of the present one
	Before           *Ending // of the one before
	MemoryLimit      string
	CPULimit         string
}

// Ending is how a container ended.
type Ending struct {
	At      time.Time
	Reason  string
	Code    int
	ID      string // of the container, without the runtime
	Message string
}

// Blind is a source that can't see, so that what it would report of may be so.
type Blind struct {
	Source, Why string
	Since       time.Time // zero: not known
}

// Unread is what could not be read.
type Unread struct {
	What, Why string
	// Needed: without it nobody can say that all is well.
	Needed bool
}
