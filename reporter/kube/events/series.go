package events

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/pods"
)

// key distinguishes the series that exist at a time.
type key struct {
	rule string
	pod  string // UID of the pod whose Event it is; empty: the Node's
	// part is which of a rule's problems on the Node the series is about; empty:
	// those of pods, and those that have no series of their own.
	part string
}

// series is one Event, as it is to be. What makes it up follows from the journal's
// entries; the part about delivery may be older than what the API server has.
type series struct {
	Rule  string `json:"rule"`
	Pod   string `json:"pod,omitempty"`
	Part  string `json:"part,omitempty"`
	Order uint64 `json:"order"` // by which the Events of an outage are sent

	Severity problem.Severity `json:"severity"`
	Reason   string           `json:"reason"`
	Message  string           `json:"message"`         // of the latest occurrence
	About    string           `json:"about,omitempty"` // UID of the pod that it hit
	Object   string           `json:"object"`          // what it hit, to report whether it is always the same
	Mixed    bool             `json:"mixed,omitempty"` // it is not
	// Began is the time of the entry that began the series. A problem that was muted for long
	// gets a second series with the same First. Zero: an earlier release named the series
	// without it.
	Began      time.Time `json:"began,omitzero"`
	First      time.Time `json:"first"` // the fault's own times
	Last       time.Time `json:"last"`
	Heard      time.Time `json:"heard"` // of the latest entry
	Count      uint64    `json:"count"`
	Unreported uint64    `json:"untold,omitempty"` // of Count, not reported on their pods
	Doc        string    `json:"doc,omitempty"`    // page of the latest occurrence's rule
	// Event is that of the latest occurrence, shared and not to be changed; nil: it has
	// none, or the API server has what it says.
	Event *event.Event `json:"event,omitempty"`

	// Delivery.
	Created         bool      `json:"created,omitempty"`
	Acked           uint64    `json:"acked,omitempty"` // Count and Unreported that the API server has
	AckedUnreported uint64    `json:"ackedUntold,omitempty"`
	Where           *pods.Pod `json:"where,omitempty"`  // of Pod, once known
	Astray          string    `json:"astray,omitempty"` // why it is not known, see the Astray constants

	due     time.Time     // not before; zero: at once
	every   time.Duration // the time between writes now
	tries   int           // that were refused in a row
	asked   time.Time     // since when its pod is looked for
	sending bool
	kernel  time.Time // the kernel's time of its beginning, until acknowledged
}

// Why an Event is not known where it belongs.
const (
	AstrayBudget    = "budget"     // the rule has begun too many series
	AstrayNamespace = "namespace"  // the pod's namespace is gone or going
	AstrayPod       = "unknownPod" // no such pod became known in time
	AstrayInvalid   = "invalid"    // the API server will never take it
	AstrayRoom      = "room"       // there are too many series
)

func (s *series) key() key { return key{s.Rule, s.Pod, s.Part} }

// name is the Event's: the same for the same series, whoever computes it when.
func (s *series) name(node string) string {
	h := sha256.New()
	parts := []string{node, s.Rule, s.Pod, s.Part, s.First.UTC().Format(time.RFC3339Nano)}
	if !s.Began.IsZero() {
		parts = append(parts, s.Began.UTC().Format(time.RFC3339Nano))
	}
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return Component + "-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// dirty reports whether the API server doesn't have all of it.
func (s *series) dirty() bool {
	return s.Astray == "" && (s.Acked != s.Count || s.AckedUnreported != s.Unreported)
}

// part is a group of problems as part of a key: groups are as long as somebody
// names his files.
func part(group string) string {
	sum := sha256.Sum256([]byte(group))
	return hex.EncodeToString(sum[:8])
}
