package worker

import (
	"maps"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Why a Diagnosis is dropped.
const (
	dropFull    = "full"    // too many of own triggers have not ended, or their end is not reported
	dropStale   = "stale"   // it is of long ago, and nobody knows what was made then
	dropRefused = "refused" // the store has refused it; its run is known to this node alone
	dropUnknown = "unknown" // a transition, as triggers were not known for too long
)

// What became of a write.
const (
	writeTaken  = "taken"
	writeAway   = "away"
	writeGone   = "gone"
	writeFailed = "failed"
)

// Stats are what a Worker has counted since it was made.
type Stats struct {
	Triggers map[string]trigger.Counts // by name
	Refused  int                       // triggers that are left aside
	Taken    uint64                    // Diagnoses to be run, of own triggers and of the store
	Made     uint64                    // of own triggers, that the store has
	Dropped  map[string]uint64         // by reason
	Ended    map[v1alpha1.Phase]uint64
	Writes   map[string]uint64 // of the status, by outcome
	Yielded  uint64            // writes that were left to another agent
	Unsaved  uint64            // writes of the ledger that have failed
	Damaged  uint64            // of the ledger, at the start
	Waiting  int               // that wait for a worker, the store or a decision
	Running  int
	// QueueFull are those of the store that wait for a place: none of the others counts them.
	QueueFull  int
	Unreported int // that have ended, and the store does not know
	// ForgottenEarly are subjects that triggers have forgotten while their cooldown lasted.
	ForgottenEarly uint64
	Runner         runner.Stats
	Artifacts      artifact.Stats
}

// drop counts and reports what is not done. The lock is held.
func (w *Worker) drop(reason, what, name string) {
	w.stats.Dropped[reason]++
	w.log.Warn("dropped", "what", what, "reason", reason, "name", name)
}

// Stats returns what was counted. It does not wait for the disk.
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
