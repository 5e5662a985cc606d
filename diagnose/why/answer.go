package why

import (
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// Outcome is the conclusion of an answer.
type Outcome string

// Outcomes.
const (
	Found   Outcome = "cause"   // at least one cause
	Healthy Outcome = "healthy" // none, and all sources work
	Unsure  Outcome = "blind"   // none, but some sources were down or could not be read
)

// Answer is the result of Build. Its text is safe to print.
type Answer struct {
	Subject Subject   `json:"subject"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	State   string    `json:"state"` // state of the subject in a few words
	// Causes are the causes found, the most conclusive first.
	Causes []Cause `json:"causes,omitempty"`
	// MoreCauses is the number of causes left out.
	MoreCauses int      `json:"moreCauses,omitempty"`
	Node       []string `json:"node,omitempty"` // for a pod: conditions of its node that are True
	Seen       []Moment `json:"seen,omitempty"` // the latest, oldest first
	// Earlier is the number of moments left out before these.
	Earlier int      `json:"earlier,omitempty"`
	Not     []string `json:"not,omitempty"` // excluded causes, with their evidence
	Do      []string `json:"do,omitempty"`
	Held    []string `json:"held,omitempty"` // repairs that are due and were not made
	Blind   []string `json:"blind,omitempty"`
	Unread  []string `json:"unread,omitempty"`
	Read    []string `json:"read,omitempty"`
}

// Cause is one cause of what is wrong with the subject.
type Cause struct {
	Reason    string           `json:"reason"`
	Message   string           `json:"message"`
	Why       []string         `json:"why,omitempty"`     // the explanation
	Effects   []string         `json:"effects,omitempty"` // what it led to
	Severity  problem.Severity `json:"severity,omitempty"`
	Lasts     bool             `json:"lasts"`
	First     time.Time        `json:"first,omitzero"`
	Last      time.Time        `json:"last,omitzero"`
	Count     uint64           `json:"count,omitempty"`
	Diagnosis string           `json:"diagnosis,omitempty"` // the one that found it
	Doc       string           `json:"doc,omitempty"`
	Muted     string           `json:"muted,omitempty"` // until when, and why
}

// Moment is something that happened.
type Moment struct {
	At      time.Time `json:"at"`
	Text    string    `json:"text"`
	Details []string  `json:"details,omitempty"`
}

const (
	maxCauses     = 3
	maxNodeCauses = 6
	maxMoments    = 10
	maxList       = 8
	// maxText bounds one text from elsewhere, in bytes.
	maxText = 512
)
