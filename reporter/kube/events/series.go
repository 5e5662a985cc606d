package events

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/detector/problem"
)

// key identifies a series among those that exist at the same time.
type key struct {
	rule string
	pod  string // UID of the pod that the Event is on; empty: the Node
	// part identifies one of a rule's problems on the Node; empty for series of pods, and for
	// problems that have no series of their own.
	part string
}

// series is the wanted state of one Event. Its content follows from the journal's entries; its
// delivery state may be older than the API server's.
type series struct {
	Rule  string `json:"rule"`
	Pod   string `json:"pod,omitempty"`
	Part  string `json:"part,omitempty"`
	Order uint64 `json:"order"` // the order in which the Events of an outage are sent

	Severity problem.Severity `json:"severity"`
	Reason   string           `json:"reason"`
	Message  string           `json:"message"`         // of the latest occurrence
	About    string           `json:"about,omitempty"` // UID of the affected pod
	Object   string           `json:"object"`          // the affected object, to check whether it is always the same
	Mixed    bool             `json:"mixed,omitempty"` // there are several objects
	// Began is the time of the entry that began the series, if an earlier series with the same
	// First may be over by then: after a problem was muted for long it gets a second one. In all
	// others it is zero, because release 0.1.0 does not have it in the name, and after a rollback
	// would create a second Event with the whole count.
	Began      time.Time `json:"began,omitzero"`
	First      time.Time `json:"first"` // First and Last are the fault's own times
	Last       time.Time `json:"last"`
	Heard      time.Time `json:"heard"` // time of the latest entry
	Count      uint64    `json:"count"`
	Unreported uint64    `json:"untold,omitempty"` // of Count, not reported on their pods
	// Shows identifies the latest permanent problems that the series reports, at most maxShown: if
	// a mute or a cause hid one of them, its end is not a new occurrence.
	Shows []string `json:"shows,omitempty"`
	Doc   string   `json:"doc,omitempty"` // doc page of the latest occurrence's rule
	// Event is the event of the latest occurrence, shared and not to be changed; nil: there is
	// none, or the API server had its facts before a restart.
	Event *event.Event `json:"event,omitempty"`

	// Delivery state.
	Created         bool      `json:"created,omitempty"`
	Acked           uint64    `json:"acked,omitempty"` // Count and Unreported as the API server has them
	AckedUnreported uint64    `json:"ackedUntold,omitempty"`
	Where           *pods.Pod `json:"where,omitempty"`  // of Pod, once known
	Astray          string    `json:"astray,omitempty"` // why the Event can't be delivered, see the Astray constants

	due     time.Time     // no request before; zero: at once
	every   time.Duration // current time between writes
	tries   int           // refusals in a row
	fails   int           // in a row, of requests that the API server failed, throttled or did not answer in time
	asked   time.Time     // since when its pod is looked up
	sending bool
	kernel  time.Time // kernel's time of the first occurrence, until acknowledged
}

// maxShown bounds Shows, at 40 bytes each.
const maxShown = 32

// Why an Event can't be delivered.
const (
	AstrayBudget    = "budget"     // the rule has begun too many series
	AstrayNamespace = "namespace"  // the pod's namespace is deleted or terminating
	AstrayPod       = "unknownPod" // no such pod became known in time
	AstrayInvalid   = "invalid"    // the API server will never accept it
	AstrayRoom      = "room"       // there are too many series
)

func (s *series) key() key { return key{s.Rule, s.Pod, s.Part} }

// name returns the Event's name. It depends only on the series and the node.
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

// dirty reports whether the API server does not have the latest counts.
func (s *series) dirty() bool {
	return s.Astray == "" && (s.Acked != s.Count || s.AckedUnreported != s.Unreported)
}

// part returns a problem's group as part of a key. It is a hash, because groups can be as long as
// file names.
func part(group string) string {
	sum := sha256.Sum256([]byte(group))
	return hex.EncodeToString(sum[:8])
}
