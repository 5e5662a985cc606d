package worker

import (
	"maps"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Reasons why a Diagnosis is dropped.
const (
	dropFull    = "full"    // too many of own triggers are open
	dropStale   = "stale"   // it is old, and it is unknown what was made then
	dropRefused = "refused" // the store has rejected it; only this node knows its run
	dropUnknown = "unknown" // a transition, because triggers were unknown for too long
)

// Outcomes of a write.
const (
	writeTaken  = "taken"
	writeAway   = "away"
	writeGone   = "gone"
	writeFailed = "failed"
)

// Stats are a Worker's counters since it was created.
type Stats struct {
	Triggers map[string]trigger.Counts // by name
	Refused  int                       // ignored triggers
	Taken    uint64                    // Diagnoses to be run, of own triggers and of the store
	Made     uint64                    // Diagnoses of own triggers that the store has
	Dropped  map[string]uint64         // by reason
	Ended    map[v1alpha1.Phase]uint64
	Writes   map[string]uint64 // of the status, by outcome
	Yielded  uint64            // writes skipped because another agent has the Diagnosis
	Unsaved  uint64            // failed writes of the ledger
	Damaged  uint64            // unreadable ledger entries at the start
	Waiting  int               // Diagnoses that wait for a worker, the store or a decision
	Running  int
	// QueueFull are Diagnoses of the store that wait for a slot. They are not in any other count.
	QueueFull  int
	Unreported int // Diagnoses that have ended, but not in the store
	// ForgottenEarly are subjects that triggers evicted during their cooldown.
	ForgottenEarly uint64
	Runner         runner.Stats
	Artifacts      artifact.Stats
}

// drop counts and logs something that is not done. The lock is held.
func (w *Worker) drop(reason, what, name string) {
	w.stats.Dropped[reason]++
	w.log.Warn("dropped", "what", what, "reason", reason, "name", name)
}

// Stats returns the counters. It does not wait for the disk.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, triggers := w.stats, w.engine.Stats()
	s.Triggers, s.ForgottenEarly = triggers.Triggers, triggers.ForgottenEarly
	s.Dropped, s.Ended, s.Writes = maps.Clone(s.Dropped), maps.Clone(s.Ended), maps.Clone(s.Writes)
	if w.runner != nil {
		s.Runner = w.runner.Stats()
	}
	if w.artifacts != nil {
		s.Artifacts = w.artifacts.Stats()
	}
	s.Refused, s.QueueFull = len(w.refused), len(w.outside)
	for _, e := range w.entries {
		switch {
		case e.Gone:
		case e.End != nil && !e.Reported && !e.Local:
			s.Unreported++
		case e.End != nil:
		case e.report != nil && e.report.Running > 0:
			s.Running++
		default:
			s.Waiting++
		}
	}
	return s
}
