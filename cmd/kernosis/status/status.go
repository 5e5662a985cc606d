// Package status shows the state of this machine's agent: whether it runs, what is wrong, which
// sources it has, what it lost and what it costs. It reads the agent's HTTP endpoint, its journal
// and its process, and changes nothing.
package status

import (
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// Outcome summarizes a state.
type Outcome string

// Outcomes.
const (
	Healthy  Outcome = "healthy"
	Problems Outcome = "problems" // a problem fires, a condition is not False, a source is blind, or the agent does not work
	Unknown  Outcome = "unknown"  // no agent runs, or none of its results can be read
)

// State is the state of an agent at a time. Its texts are safe to show.
type State struct {
	At      time.Time `json:"at"`
	Node    string    `json:"node,omitempty"`
	Kernel  string    `json:"kernel"`
	Outcome Outcome   `json:"outcome"`
	Agent   Agent     `json:"agent"`
	// Problems are the firing problems, the most severe first.
	Problems   []Problem           `json:"problems"`
	Conditions []problem.Condition `json:"conditions"`
	Sources    []Source            `json:"sources"`
	// Degraded lists what the agent lacks, one line for each part.
	Degraded []string `json:"degraded"`
	// Losses are what was lost since the agent started.
	Losses []Loss `json:"losses"`
	API    API    `json:"api"`
	Cost   Cost   `json:"cost"`
	// Unread lists what could not be queried or read.
	Unread []Unread `json:"unread"`
}

// Agent is the agent's process.
type Agent struct {
	Running  bool      `json:"running"`
	Version  string    `json:"version,omitempty"` // empty: not known
	PID      int       `json:"pid,omitempty"`     // 0: not known
	Started  time.Time `json:"started,omitzero"`
	Endpoint string    `json:"endpoint,omitempty"`
	// Health is the answer of /healthz: "ok", or what is wrong; empty: no answer.
	Health  string    `json:"health,omitempty"`
	Journal string    `json:"journal,omitempty"` // what was read
	Saved   time.Time `json:"saved,omitzero"`    // when the state was last saved
}

// Problem is a firing problem.
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
	// HiddenBy is the rule of the problem's cause, which fires too.
	HiddenBy   string    `json:"hiddenBy,omitempty"`
	MutedUntil time.Time `json:"mutedUntil,omitzero"`
	MutedWhy   string    `json:"mutedWhy,omitempty"`
	Doc        string    `json:"doc,omitempty"`
}

// counts reports whether the problem makes the state unhealthy.
func (p *Problem) counts() bool { return p.MutedUntil.IsZero() }

// SourceState says whether a source detects its faults.
type SourceState string

// States of sources.
const (
	Attached SourceState = "attached" // by BPF programs
	Fallback SourceState = "fallback" // by fallback programs
	Up       SourceState = "up"       // a log, a check or another source without programs
	Blind    SourceState = "blind"
)

// Source is a source of the agent.
type Source struct {
	Name  string      `json:"name"`
	State SourceState `json:"state"`
	Why   string      `json:"why,omitempty"` // why it is blind, or a fallback serves it
	Since time.Time   `json:"since,omitzero"`
}

// Loss is something that was lost.
type Loss struct {
	What   string `json:"what"` // a source, "journal entries", "Events", "Diagnoses" or "output lines"
	Reason string `json:"reason,omitempty"`
	Count  uint64 `json:"count"` // 0: unknown, possibly nothing
}

// API describes the agent's writes to the API server.
type API struct {
	Known  bool    `json:"known"` // whether the agent could be queried
	Used   bool    `json:"used"`  // whether the agent reports to an API server
	Writes []Write `json:"writes,omitempty"`
	// Pending: the API server does not have the current conditions yet.
	Pending bool `json:"pending,omitempty"`
}

// Write is the latest accepted write of a kind of object.
type Write struct {
	Object string    `json:"object"` // condition, event, lease, diagnosis
	Last   time.Time `json:"last"`
}

// Cost is what the agent uses.
type Cost struct {
	RSSBytes   uint64  `json:"rssBytes,omitempty"` // 0: not known
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	// CPUPercent is the percentage of one CPU, since the previous read or since the start.
	CPUPercent float64       `json:"cpuPercent,omitempty"`
	Over       time.Duration `json:"-"` // period of CPUPercent; 0: unknown
}

// Unread is something that could not be queried or read.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// outcome returns the outcome of the state; read says whether the agent's results could be read.
func (s *State) outcome(read bool) Outcome {
	if !s.Agent.Running || !read {
		return Unknown
	}
	if len(s.findings()) > 0 {
		return Problems
	}
	return Healthy
}

// findings returns what makes the state unhealthy: a few words for each kind of finding.
func (s *State) findings() []string {
	var out []string
	count := func(n int, noun, state string) {
		if n > 0 {
			out = append(out, display.Count(n, noun)+" "+state)
		}
	}
	if h := s.Agent.Health; h != "" && h != healthy {
		out = append(out, "the agent is not healthy")
	}
	firing, blind := 0, 0
	for i := range s.Problems {
		if s.Problems[i].counts() {
			firing++
		}
	}
	for _, source := range s.Sources {
		if source.State == Blind {
			blind++
		}
	}
	conditions := map[problem.Status]int{}
	for _, c := range s.Conditions {
		conditions[c.Status]++
	}
	count(firing, "problem", "firing")
	count(conditions[problem.True], "condition", "True")
	count(conditions[problem.Unknown], "condition", "Unknown")
	count(blind, "source", "blind")
	return out
}
