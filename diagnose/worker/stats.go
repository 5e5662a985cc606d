package worker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// Listed is a Diagnosis that the worker knows: one that waits, runs, or has ended and is kept.
type Listed struct {
	ID              string // of the run, for [runner.ReadSaved] once it has begun
	Namespace, Name string
	Trigger         string // empty: a person created it
	OperationSet    string
	Subject         string
	Rule            string // of the problem that it was created for
	Taken           time.Time
	// Phase, Reason, Message and Ended describe its end. Before that, the phase is Running or
	// Pending.
	Phase           v1alpha1.Phase
	Reason, Message string
	Ended           time.Time
}

// List returns the Diagnoses of the node, the newest first. Deleted ones are left out. It reads no file.
func (w *Worker) List() []Listed {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Listed, 0, len(w.entries))
	for _, e := range w.entries {
		if e.Gone {
			continue
		}
		d := e.Diagnosis
		l := Listed{
			ID: e.ID, Namespace: d.Namespace, Name: d.Name, Trigger: d.Labels[v1alpha1.LabelTrigger],
			OperationSet: d.Spec.OperationSet, Subject: subjectOf(d, w.c.Node), Taken: e.Taken, Phase: v1alpha1.PhasePending,
		}
		if e.Problem != nil {
			l.Rule = e.Problem.Rule
		}
		switch {
		case e.End != nil:
			l.Phase, l.Reason, l.Message, l.Ended = e.End.Phase, e.End.Reason, e.End.Message, e.End.At
		case e.report != nil:
			l.Phase = e.report.Phase
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.ID, b.ID)) })
	return out
}

func newLatency() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kernosis_diagnosis_latency_seconds", Help: "Time from the report of a problem to the end of its diagnosis.",
		// 10 ms is one or two quick operations; minutes are operations that wait.
		Buckets: []float64{.01, .03, .1, .3, 1, 2, 3, 5, 10, 30, 60, 300},
	})
}

// Describe implements prometheus.Collector.
func (w *Worker) Describe(ch chan<- *prometheus.Desc) {
	w.latency.Describe(ch)
	one := Stats{Triggers: map[string]trigger.Counts{"": {Withheld: map[string]uint64{"": 0}}}, Dropped: map[string]uint64{"": 0}} // so that there are all metrics
	for _, m := range one.metrics() {
		ch <- m.Desc()
	}
}

// Collect implements prometheus.Collector.
func (w *Worker) Collect(ch chan<- prometheus.Metric) {
	w.latency.Collect(ch)
	s := w.Stats()
	for _, m := range s.metrics() {
		ch <- m
	}
}

// metrics returns the counters for Prometheus.
func (s *Stats) metrics() (all []prometheus.Metric) {
	// labels are names, each followed by its value.
	add := func(kind prometheus.ValueType, n float64, name, help string, labels ...string) {
		var names, values []string
		for label := range slices.Chunk(labels, 2) {
			names, values = append(names, label[0]), append(values, label[1])
		}
		all = append(all, prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, n, values...))
	}
	counter := func(n uint64, name, help string, labels ...string) {
		add(prometheus.CounterValue, float64(n), name, help, labels...)
	}
	gauge := func(n int, name, help string) { add(prometheus.GaugeValue, float64(n), name, help) }
	for name, t := range s.Triggers {
		counter(t.Started, "kernosis_trigger_diagnoses_total", "Diagnoses that triggers have requested, by trigger.", "trigger", name)
		for reason, n := range t.Withheld {
			counter(n, "kernosis_trigger_withheld_total", "Diagnoses that a trigger did not request because of its limits, by trigger and reason.", "trigger", name, "reason", reason)
		}
	}
	for reason, n := range s.Dropped {
		counter(n, "kernosis_diagnoses_dropped_total", "Diagnoses that were not run or not reported, by reason.", "reason", reason)
	}
	// Also zeros: increase() does not see the first count of a counter that was not there before.
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseCancelled, v1alpha1.PhaseUnknown} {
		counter(s.Ended[phase], "kernosis_diagnoses_ended_total", "Diagnoses that have ended, by phase.", "phase", string(phase))
	}
	for _, outcome := range []string{writeTaken, writeAway, writeGone, writeFailed} {
		counter(s.Writes[outcome], "kernosis_diagnosis_writes_total", "Writes of a Diagnosis' status, by outcome (taken, away, gone, failed).", "outcome", outcome)
	}
	gauge(s.Refused, "kernosis_triggers_refused", "Triggers that are ignored because they are invalid.")
	counter(s.Taken, "kernosis_diagnoses_taken_total", "Diagnoses that this node accepted, from its own triggers and others.")
	counter(s.Made, "kernosis_diagnoses_made_total", "Diagnoses of the node's own triggers that were stored in the API server; without a cluster, that were recorded.")
	counter(s.Unsaved, "kernosis_diagnosis_unsaved_total", "Failed writes of queued Diagnoses to the disk.")
	gauge(s.Running, "kernosis_diagnoses_running", "Diagnoses that are running an operation now.")
	gauge(s.Waiting, "kernosis_diagnoses_waiting", "Diagnoses that are waiting for others, for the API server, or for a decision.")
	gauge(s.QueueFull, "kernosis_diagnoses_queue_full", "Diagnoses that the node has not accepted yet because too many of their namespace have not ended.")
	gauge(s.Unreported, "kernosis_diagnoses_unreported", "Completed Diagnoses not yet written to the API server.")
	counter(s.Yielded, "kernosis_diagnosis_yielded_total", "Writes of a Diagnosis' status that were left to another agent.")
	for file, n := range map[string]uint64{"taken": s.Damaged, "checkpoint": s.Runner.Corrupt} {
		counter(n, "kernosis_diagnosis_damaged_total", "Saved entries and checkpoints of Diagnoses that could not be read.", "file", file)
	}
	counter(s.ForgottenEarly, "kernosis_trigger_forgotten_early_total", "Subjects that were forgotten during their cooldown, for lack of space.")
	gauge(int(s.Runner.Hanging), "kernosis_operations_hanging", "Operations that were abandoned and have not returned.")
	counter(s.Runner.Abandoned, "kernosis_operations_abandoned_total", "Operations that did not end in time and were abandoned.")
	counter(s.Runner.Unsaved, "kernosis_diagnosis_checkpoints_unsaved_total", "Checkpoints of Diagnoses that could not be written to the disk.")
	a := &s.Artifacts
	gauge(int(a.Bytes), "kernosis_artifact_bytes", "Size of the artifacts on the disk.")
	for reason, n := range map[string]uint64{"evicted": a.Evicted, "truncated": a.Truncated, "refused": a.Refused, "discarded": a.Discarded, "partial": a.Partial} {
		counter(n, "kernosis_artifacts_lost_total", "Artifacts that are lost or incomplete, by reason (evicted, truncated, refused, discarded, partial).", "reason", reason)
	}
	return all
}
