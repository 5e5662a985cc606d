package journal

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Entry is one step of the engine: an input and what followed from it.
type Entry struct {
	Seq uint64 `json:"seq"` // 1, 2, 3 …, never reused in one journal
	// Now is the wall clock at this step, and BootTime the engine's: the time since boot.
	Now      time.Time      `json:"now"`
	BootTime event.Duration `json:"bootTime"`
	// Event is the input; nil for a step that only time caused, and for the two
	// below.
	Event *event.Event `json:"event,omitempty"`
	// Rules are those that Event is an input of; nil: all. It was reported before and lasts, and
	// they are newer.
	Rules []string `json:"rules,omitempty"`
	// Boot is the id of the machine's boot, and says that the agent started.
	Boot string `json:"boot,omitempty"`
	// Mutes are those in force from now on; nil: those in force until now.
	Mutes       *[]problem.Mute      `json:"mutes,omitempty"`
	Transitions []problem.Transition `json:"transitions,omitempty"`

	// Line is the entry as [Journal.Add] has written it, for who writes the same
	// elsewhere; nil: it did not.
	Line []byte `json:"-"`
}

// NewEntry returns an entry of a step at a moment.
func NewEntry(at event.Moment) Entry {
	return Entry{Now: at.Wall, BootTime: event.Duration(at.Boot)}
}

// Moment is when the step was taken.
func (e *Entry) Moment() event.Moment {
	return event.Moment{Wall: e.Now, Boot: time.Duration(e.BootTime)}
}

// Apply takes the step again in an engine, and returns what follows from it there. An event that
// the engine has seen changes nothing.
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
