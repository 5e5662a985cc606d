package local

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/why"
)

// State is the state of a node at a time, according to its journal.
type State struct {
	why.Input
	// Started is when the agent started; zero: before the journal begins.
	Started time.Time
	Sources []Source
	Losses  []Loss // since the agent started
}

// Source is the latest state of a source.
type Source struct {
	Name     string
	Up       bool
	Reason   string // why it is down
	Fallback string // which parts of it use a fallback, and why
	Since    time.Time
}

// Loss counts the records lost from one source for one reason.
type Loss struct {
	Source, Reason string
	Count          uint64 // 0: unknown, possibly none
	Last           time.Time
}

type lossKey struct{ source, reason string }

// maxLosses bounds the losses that are counted, in case a journal has too many.
const maxLosses = 1000

// state returns the state that has been collected.
func (r *reader) state(damaged int) (State, error) {
	maps.DeleteFunc(r.problems, func(_ string, k *kept) bool {
		return k.State == problem.Resolved && r.c.Now.Sub(k.LastSeen) > r.c.Since
	})
	in, err := r.input(damaged)
	st := State{Input: in, Started: r.began}
	for stem, s := range r.sources {
		// These names are of families without any configured member.
		if stem == event.LogStem || stem == event.CheckStem {
			continue
		}
		source := Source{Name: stem, Up: s.up, Fallback: s.fallback, Since: s.at}
		if !s.up {
			source.Reason = s.reason
		}
		st.Sources = append(st.Sources, source)
	}
	slices.SortFunc(st.Sources, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	for _, l := range r.losses {
		st.Losses = append(st.Losses, *l)
	}
	slices.SortFunc(st.Losses, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason)) })
	return st, err
}
