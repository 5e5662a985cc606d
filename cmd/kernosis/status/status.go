// Package status shows how the agent of this machine does: whether it runs, what is wrong, which
// sources it has, what it lost and what it costs. It reads the agent's HTTP endpoint, its journal
// and its process, and changes nothing.
package status

import (
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// Outcome is what a state comes to.
type Outcome string

// Outcomes.
const (
	Healthy  Outcome = "healthy"
	Problems Outcome = "problems" // something fires, a condition is not False, a source is blind, or the agent does not work
	Unknown  Outcome = "unknown"  // no agent runs, or nothing of what it found can be read
)

// State is how an agent does at a time. Its texts are safe to be shown.
type State struct {
	At      time.Time `json:"at"`
	Node    string    `json:"node,omitempty"`
	Kernel  string    `json:"kernel"`
	Outcome Outcome   `json:"outcome"`
	Agent   Agent     `json:"agent"`
	// Problems are those that fire, the most severe first.
	Problems   []Problem           `json:"problems"`
	Conditions []problem.Condition `json:"conditions"`
	Sources    []Source            `json:"sources"`
	// Degraded is what the agent lacks, a line for each part.
	Degraded []string `json:"degraded"`
	// Losses are since the agent started.
	Losses []Loss `json:"losses"`
	API    API    `json:"api"`
	Cost   Cost   `json:"cost"`
	// Unread is what could not be asked or read.
	Unread []Unread `json:"unread"`
}

// Agent is the process that is asked.
type Agent struct {
	Running  bool      `json:"running"`
	Version  string    `json:"version,omitempty"` // empty: not known
	PID      int       `json:"pid,omitempty"`     // 0: not known
	Started  time.Time `json:"started,omitzero"`
	Endpoint string    `json:"endpoint,omitempty"`
	// Health is what /healthz answers: "ok", or what is wrong; empty: nothing.
	Health  string    `json:"health,omitempty"`
	Journal string    `json:"journal,omitempty"` // what was read
	Saved   time.Time `json:"saved,omitzero"`    // when the state folder was written last
}

// Problem is one that fires.
type Problem struct {
	Rule      string           `json:"rule"`
	Reason    string           `json:"reason,omitempty"`
	Severity  problem.Severity `json:"severity,omitempty"`
	Subject   string           `json:"subject,omitempty"`
	Message   string           `json:"message,omitempty"`
	Condition string           `json:"condition,omitempty"`
	Since     time.Time        `json:"since,omitzero"`
	Last      time.Time        `json:"last,omitzero"`
	Count     uint64           `json:"count,omitempty"`
	// HiddenBy is the rule of its cause, which fires too.
	HiddenBy   string    `json:"hiddenBy,omitempty"`
	MutedUntil time.Time `json:"mutedUntil,omitzero"`
	MutedWhy   string    `json:"mutedWhy,omitempty"`
	Doc        string    `json:"doc,omitempty"`
}

// counts reports whether a problem makes the state other than healthy.
func (p *Problem) counts() bool { return p.MutedUntil.IsZero() }

// SourceState says whether a source sees its faults.
type SourceState string

// States of sources.
const (
	Attached SourceState = "attached" // by BPF programs
	Fallback SourceState = "fallback" // by programs that are second choice
	Up       SourceState = "up"       // a log, a check or another source without programs
	Blind    SourceState = "blind"
)

// Source is one of the agent's.
type Source struct {
	Name  string      `json:"name"`
	State SourceState `json:"state"`
	Why   string      `json:"why,omitempty"` // it is blind, or a fallback serves it
	Since time.Time   `json:"since,omitzero"`
}

// Loss is what was lost.
type Loss struct {
	What   string `json:"what"` // a source, "journal entries", "Events", "Diagnoses" or "output lines"
	Reason string `json:"reason,omitempty"`
	Count  uint64 `json:"count"` // 0: it is not known how much, and possibly nothing
}

// API is what the agent wrote to the API server.
type API struct {
	Known  bool    `json:"known"` // whether the agent could be asked
	Used   bool    `json:"used"`  // whether the agent reports to an API server
	Writes []Write `json:"writes,omitempty"`
	// Pending: the API server lacks the conditions as they are.
	Pending bool `json:"pending,omitempty"`
}

// Write is the latest that the API server accepted of a kind of object.
type Write struct {
	Object string    `json:"object"` // condition, event, lease, diagnosis
	Last   time.Time `json:"last"`
}

// Cost is what the agent uses.
type Cost struct {
	RSSBytes   uint64  `json:"rssBytes,omitempty"` // 0: not known
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	// CPUPercent is of one CPU, since the time before that is shown or since the start.
	CPUPercent float64       `json:"cpuPercent,omitempty"`
	Over       time.Duration `json:"-"` // which CPUPercent is over; 0: not known
}

// Unread is something that could not be asked or read.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// outcome says what the state comes to; findings: what the agent found could be read.
func (s *State) outcome(findings bool) Outcome {
	if !s.Agent.Running || !findings {
		return Unknown
	}
	if s.Agent.Health != "" && s.Agent.Health != healthy {
		return Problems
	}
	for i := range s.Problems {
		if s.Problems[i].counts() {
			return Problems
		}
	}
	for _, c := range s.Conditions {
		if c.Status != problem.False {
			return Problems
		}
	}
	for _, source := range s.Sources {
		if source.State == Blind {
			return Problems
		}
	}
	return Healthy
}
