package why

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// Input is what is known about the subject. Its text is untrusted: Build escapes and bounds it.
type Input struct {
	Subject Subject
	// Now is the time of the answer. Times are printed in its location.
	Now time.Time
	// Since is how long after its end something is still reported.
	Since time.Duration

	Read       []string // what was read, for people: "journal of /var/lib/kernosis"
	Unread     []Unread
	Problems   []Problem
	Conditions []problem.Condition // of the node
	Diagnoses  []Diagnosis
	Events     []Event // from others than the agent
	Containers []Container
	Blind      []Blind
	// Pods maps UIDs to names, for pods that texts may name by UID.
	Pods map[string]string
	// Advice returns the advice on a page of the docs. May be nil.
	Advice func(page string) []string
}

// Kinds of subjects.
const (
	KindPod  = "pod"
	KindNode = "node"
)

// Subject is the pod or node that the question is about.
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

// String returns "shop/web-1", or "node " and a node's name.
func (s *Subject) String() string {
	switch {
	case s.Kind == KindNode:
		return "node " + s.Name
	case s.Namespace != "":
		return s.Namespace + "/" + s.Name
	}
	return "pod " + s.Name
}

// Sources of a problem.
const (
	FromJournal = "journal"
	FromAPI     = "API"
)

// Problem is a problem that a rule reported. From the API it is a series of occurrences, and its
// end is unknown.
type Problem struct {
	From         string
	Rule         string // empty: unknown
	Reason       string
	Message      string
	Condition    string
	Severity     problem.Severity
	Subject      string // as the rule names it
	Pod          string // UID
	Lasts        bool
	First, Last  time.Time
	Count        uint64
	SuppressedBy string // the rule of its cause
	MutedUntil   time.Time
	MutedWhy     string
	NextProbe    time.Time // zero: unknown
	event.Facts
}

// Diagnosis is a Diagnosis that was made.
type Diagnosis struct {
	Namespace, Name  string // Namespace is empty if only the node has it
	UID              string // empty: unknown
	Rule             string // of the problem it was made for; empty: made for another reason
	Reason           string // of that problem
	Subject          string
	PodUID           string
	Pod              string    // namespace/name
	Container        string    // its name or id; empty: unknown
	Ended            time.Time // zero: it runs, or was interrupted
	Started          time.Time
	Verdict, Message string // empty: no cause was found
	Path             []string
	Excluded         []Finding
	CouldNotLook     []Finding
	Repairs          []Repair // due, made or not
}

// Finding is a cause with its evidence.
type Finding struct {
	Operation       string // the check that excluded the cause; empty: it was not excluded
	Reason, Message string
}

// Repair is a repair and its state.
type Repair struct {
	Operation, State, Message string
	Held                      bool // it was not made, though it is due
}

// Event is an Event of another component, such as kubelet.
type Event struct {
	Last      time.Time
	Count     int
	Warning   bool
	Reason    string
	Message   string
	By        string
	Container string // empty: none or unknown
}

// Container is a container's status.
type Container struct {
	Name, ID         string // ID without the runtime
	Running, Ready   bool
	Since            time.Time // when it started
	Waiting, Message string    // why it waits
	Restarts         int
	Ended            *Ending // of the current instance
	Before           *Ending // of the previous instance
}

// Ending is how a container ended.
type Ending struct {
	At      time.Time
	Reason  string
	Code    int
	ID      string // of the container, without the runtime
	Message string
}

// Blind is a source that does not work, so that its problems would go unnoticed.
type Blind struct {
	Source, Why string
	Since       time.Time // zero: unknown
}

// Unread is something that could not be read.
type Unread struct {
	What, Why string
	// Needed: without it the subject can't be called healthy.
	Needed bool
}

// Merge combines what a journal and the API have about the same subject. If both have it, problems
// and diagnoses come from the journal, which is complete and knows what has ended; conditions and
// names come from the API.
func Merge(journal, api Input) Input {
	out := api
	out.Subject.UID = cmp.Or(out.Subject.UID, journal.Subject.UID)
	if journal.Now.After(out.Now) {
		out.Now = journal.Now
	}
	out.Read = append(slices.Clone(journal.Read), api.Read...)
	out.Unread = append(slices.Clone(journal.Unread), api.Unread...)
	out.Blind = append(slices.Clone(journal.Blind), api.Blind...)
	out.Pods = map[string]string{}
	maps.Copy(out.Pods, journal.Pods)
	maps.Copy(out.Pods, api.Pods)
	if out.Advice == nil {
		out.Advice = journal.Advice
	}
	out.Problems = slices.Clone(journal.Problems)
	for _, p := range api.Problems {
		if !slices.ContainsFunc(journal.Problems, func(o Problem) bool { return sameProblem(&o, &p) }) {
			out.Problems = append(out.Problems, p)
		}
	}
	out.Diagnoses = slices.Clone(api.Diagnoses)
	for _, d := range journal.Diagnoses {
		same := func(o Diagnosis) bool {
			return o.Name == d.Name || o.UID == d.UID && o.UID != ""
		}
		if !slices.ContainsFunc(api.Diagnoses, same) {
			out.Diagnoses = append(out.Diagnoses, d)
		}
	}
	out.Conditions = slices.Clone(api.Conditions)
	for _, c := range journal.Conditions {
		if !slices.ContainsFunc(api.Conditions, func(o problem.Condition) bool { return o.Type == c.Type }) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

// sameProblem reports whether a series of the API reports the problem of the journal. A series on
// the Node may report several problems; then all of them are in the journal.
func sameProblem(journal, api *Problem) bool {
	return journal.Reason == api.Reason && (api.Pod == "" || journal.Pod == api.Pod) && !journal.Last.Before(api.Last.Add(-sameMoment))
}
