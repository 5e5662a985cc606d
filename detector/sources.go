package detector

import (
	"cmp"
	"slices"

	"github.com/kernosis/kernosis/collector/event"
)

// SourceState is the state of one source of events.
type SourceState struct {
	Stem   string
	Up     bool
	Reason string // why it is down
	// Lost is why records were lost in the last five minutes; empty: none were.
	Lost string
}

// Sources returns the sources that have reported their state or a loss, sorted by stem. It omits the
// families of logs and checks, which represent members that are not configured.
func (e *Engine) Sources() []SourceState {
	var out []SourceState
	for stem, st := range e.stems {
		if stem == event.LogStem || stem == event.CheckStem || !st.Known && st.LossyUntil == 0 {
			continue
		}
		s := SourceState{Stem: stem, Up: st.Up || !st.Known, Reason: st.Reason}
		if s.Up {
			s.Reason = ""
		}
		if st.LossyUntil != 0 {
			s.Lost = st.LossReason
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SourceState) int { return cmp.Compare(a.Stem, b.Stem) })
	return out
}
