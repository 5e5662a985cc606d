package events

import (
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Outcomes of requests besides those of package conditions. Conflict also means that the Event
// already existed, perhaps with an older count.
const (
	Created       conditions.Outcome = "created"
	Patched       conditions.Outcome = "patched"
	Recreated     conditions.Outcome = "recreated"      // 404 of a patch: the Event has expired and is created again
	NamespaceGone conditions.Outcome = "namespace_gone" // or terminating
)

// Outcomes returns all outcomes, for a table of counters.
func Outcomes() []conditions.Outcome {
	failed := slices.DeleteFunc(conditions.Outcomes()[1:], func(o conditions.Outcome) bool { return o == conditions.NodeMissing })
	return append([]conditions.Outcome{Created, Patched, Recreated, NamespaceGone}, failed...)
}

// Stats are the sink's counters since its state was created. They continue across restarts.
type Stats struct {
	Rules map[string]RuleStats // by rule name, or "condition/" and a condition type; at most 1001
	// LostEntries is the number of journal entries that could not be read, so that their content
	// is unknown.
	LostEntries uint64
	Series      int // current number of series
	Waiting     int // series with something the API server doesn't have yet

	// Of this process.
	Requests  map[conditions.Outcome]uint64
	LastAcked time.Time // of the last accepted request; zero: none
}

// RuleStats counts a rule's occurrences. Once all is sent, the counts of its Events on the Node
// and Dropped add up to Happened, and those of its Events on pods and Unreported to OnPods.
type RuleStats struct {
	Happened   uint64
	OnPods     uint64
	Unreported map[string]uint64 // on their pods; by Astray reason
	Dropped    map[string]uint64 // by Astray reason
}

// Stats returns a copy of the counters.
func (k *Sink) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.stats
	st.Requests = maps.Clone(st.Requests)
	st.Rules = make(map[string]RuleStats, len(k.table.rules))
	for name, r := range k.table.rules {
		st.Rules[name] = RuleStats{Happened: r.Happened, OnPods: r.OnPods, Unreported: maps.Clone(r.Unreported), Dropped: maps.Clone(r.Dropped)}
	}
	st.LostEntries, st.Series = k.table.lost, len(k.table.list)
	for _, s := range k.table.list {
		if s.dirty() {
			st.Waiting++
		}
	}
	return st
}
