package journal

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Entry is one step of the engine: an input and the transitions that followed.
type Entry struct {
	Seq uint64 `json:"seq"` // 1, 2, 3 …, never reused in one journal
	// Now is the wall clock at this step. BootTime is the engine's clock: the time since boot.
	Now      time.Time      `json:"now"`
	BootTime event.Duration `json:"bootTime"`
	// Event is the input. It is nil for steps that only time, a start (Boot) or Mutes caused.
	Event *event.Event `json:"event,omitempty"`
	// Rules limits the event to these rules; nil means all. It is set when an event reported
	// earlier still lasts and is passed to rules added since.
	Rules []string `json:"rules,omitempty"`
	// Boot is the machine's boot ID. It is set if this entry records a start of the agent.
	Boot string `json:"boot,omitempty"`
	// Mutes are the mutes in force from now on. If it is nil, they have not changed.
	Mutes       *[]problem.Mute      `json:"mutes,omitempty"`
	Transitions []problem.Transition `json:"transitions,omitempty"`

	// Line is the entry as [Journal.Add] wrote it, for callers that also write the line to
	// another place. It is nil for other entries.
	Line []byte `json:"-"`
}

// NewEntry returns an entry for a step at the given moment.
func NewEntry(at event.Moment) Entry {
	return Entry{Now: at.Wall, BootTime: event.Duration(at.Boot)}
}

// Moment returns when the step was taken.
func (e *Entry) Moment() event.Moment {
	return event.Moment{Wall: e.Now, Boot: time.Duration(e.BootTime)}
}

// Apply replays the step in an engine and returns the resulting transitions. Replaying an event
// that the engine has already processed changes nothing.
func (e *Entry) Apply(engine *detector.Engine) (transitions []problem.Transition) {
	switch at := e.Moment(); {
	case e.Boot != "":
		engine.Restarted(at)
	case e.Mutes != nil:
		transitions = engine.SetMutes(*e.Mutes, at)
	case e.Event == nil:
		transitions = engine.Tick(at)
	case e.Rules != nil:
		_, transitions = engine.ObserveLasting(e.Event, e.Rules, at)
	case !engine.Seen(e.Event):
		transitions = engine.Observe(e.Event, at)
	}
	return transitions
}
