package why

import (
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// Outcome is what the answer comes to.
type Outcome string

// Outcomes.
const (
	Found   Outcome = "cause"   // at least one cause
	Healthy Outcome = "healthy" // none, and all sources see
	Unsure  Outcome = "blind"   // none, but not all that could report was seen or read
)

// Answer is what Build makes. Its text is safe to be shown.
type Answer struct {
	Subject Subject   `json:"subject"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	State   string    `json:"state"` // how the subject is, in some words
	// Causes are those found, the most conclusive first.
	Causes []Cause `json:"causes,omitempty"`
	// MoreCauses is how many are left out.
	MoreCauses int      `json:"moreCauses,omitempty"`
	Node       []string `json:"node,omitempty"` // of a pod: what its node suffers from
	Seen       []Moment `json:"seen,omitempty"` // the latest, oldest first
	// Earlier is how many moments are left out before these.
	Earlier int      `json:"earlier,omitempty"`
	Not     []string `json:"not,omitempty"` // excluded causes, with their evidence
	Do      []string `json:"do,omitempty"`
	Held    []string `json:"held,omitempty"` // repairs that are due and were not made
	Blind   []string `json:"blind,omitempty"`
	Unread  []string `json:"unread,omitempty"`
	Read    []string `json:"read,omitempty"`
}

// Cause is one.
type Cause struct {
	Reason    string           `json:"reason"`
	Message   string           `json:"message"`
	Why       []string         `json:"why,omitempty"`     // what explains it
	Effects   []string         `json:"effects,omitempty"` // what it led to
	Severity  problem.Severity `json:"severity,omitempty"`
	Lasts     bool             `json:"lasts"`
	First     time.Time        `json:"first,omitzero"`
	Last      time.Time        `json:"last,omitzero"`
	Count     uint64           `json:"count,omitempty"`
	Diagnosis string           `json:"diagnosis,omitempty"` // that found it
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
	// maxText bounds one text of others, in bytes.
	maxText = 512
)
