package trigger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/statefile"
)

// stateVersion changes when older versions of Kernosis must no longer read the format.
const stateVersion = 1

// State is an engine's memory: plain data, saved as JSON.
type State struct {
	Version  int            `json:"version"`
	Streams  []stream       `json:"streams,omitempty"`  // least recently seen first
	Subjects []subject      `json:"subjects,omitempty"` // likewise
	Triggers []TriggerState `json:"triggers,omitempty"` // by name
}

// State returns a copy of the engine's memory.
func (e *Engine) State() *State {
	s := &State{Version: stateVersion, Streams: e.streams.Values(), Subjects: e.subjects.Values()}
	for _, name := range slices.Sorted(maps.Keys(e.triggers)) {
		t := *e.triggers[name]
		t.Started, t.Tenants = slices.Clone(t.Started), slices.Clone(t.Tenants)
		s.Triggers = append(s.Triggers, t)
	}
	return s
}

// Restore replaces the engine's memory by a state. Call it before Install, which drops the memory
// of triggers that are not installed.
func (e *Engine) Restore(s *State) error {
	if len(s.Triggers) > maxMatchers {
		return fmt.Errorf("trigger state: %d triggers, at most %d", len(s.Triggers), maxMatchers)
	}
	triggers := make(map[string]*TriggerState, len(s.Triggers))
	for _, t := range s.Triggers {
		if n := max(len(t.Started), len(t.Tenants)); n > maxCount {
			return fmt.Errorf("trigger state: trigger %q: %d times, at most %d", t.Name, n, maxCount)
		}
		t.Started, t.Tenants = slices.Clone(t.Started), slices.Clone(t.Tenants)
		triggers[t.Name] = &t
	}
	for _, m := range e.matchers {
		if triggers[m.name] == nil {
			triggers[m.name] = &TriggerState{Name: m.name}
		}
	}
	e.triggers, e.now = triggers, time.Time{}
	e.streams.Purge()
	e.subjects.Purge()
	for _, v := range s.Streams {
		e.streams.Add(v.ID, v)
	}
	for _, v := range s.Subjects {
		e.subjects.Add(v.ID, v)
	}
	return nil
}

// ParseState decodes a state from JSON.
func ParseState(data []byte) (*State, error) {
	var s State
	if err := statefile.Decode(data, stateVersion, &s); err != nil {
		return nil, fmt.Errorf("trigger state: %w", err)
	}
	return &s, nil
}
