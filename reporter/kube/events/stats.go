package events

import (
	"maps"
	"slices"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// A request ends in one of these ways, or fails as a write of conditions does. Conflict also means
// that the Event existed, with an older count perhaps.
const (
	Created       conditions.Outcome = "created"
	Patched       conditions.Outcome = "patched"
	Recreated     conditions.Outcome = "recreated"      // 404 of a patch: the Event's time was over, and it is made again
	NamespaceGone conditions.Outcome = "namespace_gone" // or going
)

// Outcomes returns all, for a table of counters.
func Outcomes() []conditions.Outcome {
	failed := slices.DeleteFunc(conditions.Outcomes()[1:], func(o conditions.Outcome) bool { return o == conditions.NodeMissing })
	return append([]conditions.Outcome{Created, Patched, Recreated, NamespaceGone}, failed...)
}

// Stats is what the sink has counted since its state was begun: restarts go on
// counting.
type Stats struct {
	Rules map[string]RuleStats // by rule, "condition/" and a condition type; at most 1001
	// LostEntries is how many journal entries could not be read, so that their content is
	// unknown.
	LostEntries uint64
	Series      int // at a time
	Waiting     int // of them, with something the API server doesn't have yet

	Requests map[conditions.Outcome]uint64 // of this process
}

// RuleStats is what became of a rule's occurrences. The counts of its Events on the
// Node and Dropped add up to Happened, those of its Events on pods and Unreported to
// OnPods, once all is sent.
type RuleStats struct {
	Happened   uint64
	OnPods     uint64
	Unreported map[string]uint64 // on their pods; by Astray reason
	Dropped    map[string]uint64 // by Astray reason
}

// Stats returns the counters.
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
