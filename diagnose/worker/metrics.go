package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// descs are the metrics of diagnoses.
type descs struct {
	wanted, withheld, refused, taken, made, dropped, ended, writes, unsaved, running, waiting, queueFull, unreported *prometheus.Desc

	yielded, damaged, forgotten, hanging, abandoned, checkpoints, artifactBytes, artifactsLost *prometheus.Desc
}

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return descs{
		wanted:        desc("kernosis_trigger_diagnoses_total", "Diagnoses that triggers have requested, by trigger.", "trigger"),
		withheld:      desc("kernosis_trigger_withheld_total", "Diagnoses that a trigger did not request because of its limits, by trigger and reason.", "trigger", "reason"),
		refused:       desc("kernosis_triggers_refused", "Triggers that are ignored because they are invalid."),
		taken:         desc("kernosis_diagnoses_taken_total", "Diagnoses that this node accepted, from its own triggers and others."),
		made:          desc("kernosis_diagnoses_made_total", "Diagnoses of the node's own triggers that were stored in the API server; without a cluster, that were recorded."),
		dropped:       desc("kernosis_diagnoses_dropped_total", "Diagnoses that were not run or not reported, by reason.", "reason"),
		ended:         desc("kernosis_diagnoses_ended_total", "Diagnoses that have ended, by phase.", "phase"),
		writes:        desc("kernosis_diagnosis_writes_total", "Writes of a Diagnosis' status, by outcome (taken, away, gone, failed).", "outcome"),
		unsaved:       desc("kernosis_diagnosis_unsaved_total", "Failed writes of queued Diagnoses to the disk."),
		running:       desc("kernosis_diagnoses_running", "Diagnoses that are running an operation now."),
		waiting:       desc("kernosis_diagnoses_waiting", "Diagnoses that are waiting for others, for the API server, or for a decision."),
		queueFull:     desc("kernosis_diagnoses_queue_full", "Diagnoses that the node has not accepted yet because too many of their namespace have not ended."),
		unreported:    desc("kernosis_diagnoses_unreported", "Completed Diagnoses not yet written to the API server."),
		yielded:       desc("kernosis_diagnosis_yielded_total", "Writes of a Diagnosis' status that were left to another agent."),
		damaged:       desc("kernosis_diagnosis_damaged_total", "Saved entries and checkpoints of Diagnoses that could not be read.", "file"),
		forgotten:     desc("kernosis_trigger_forgotten_early_total", "Subjects that were forgotten during their cooldown, for lack of space."),
		hanging:       desc("kernosis_operations_hanging", "Operations that were abandoned and have not returned."),
		abandoned:     desc("kernosis_operations_abandoned_total", "Operations that did not end in time and were abandoned."),
		checkpoints:   desc("kernosis_diagnosis_checkpoints_unsaved_total", "Checkpoints of Diagnoses that could not be written to the disk."),
		artifactBytes: desc("kernosis_artifact_bytes", "Size of the artifacts on the disk."),
		artifactsLost: desc("kernosis_artifacts_lost_total", "Artifacts that are lost or incomplete, by reason (evicted, truncated, refused, discarded, partial).", "reason"),
	}
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
	d := newDescs()
	w.latency.Describe(ch)
	for _, d := range []*prometheus.Desc{d.wanted, d.withheld, d.refused, d.taken, d.made, d.dropped, d.ended, d.writes, d.unsaved, d.running, d.waiting, d.queueFull, d.unreported,
		d.yielded, d.damaged, d.forgotten, d.hanging, d.abandoned, d.checkpoints, d.artifactBytes, d.artifactsLost} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (w *Worker) Collect(ch chan<- prometheus.Metric) {
	w.latency.Collect(ch)
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	d, s := newDescs(), w.Stats()
	for name, t := range s.Triggers {
		counter(d.wanted, t.Started, name)
		for reason, n := range t.Withheld {
			counter(d.withheld, n, name, reason)
		}
	}
	for reason, n := range s.Dropped {
		counter(d.dropped, n, reason)
	}
	// Also zeros: increase() does not see the first count of a counter that was not there before.
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseSucceeded, v1alpha1.PhaseFailed, v1alpha1.PhaseCancelled, v1alpha1.PhaseUnknown} {
		counter(d.ended, s.Ended[phase], string(phase))
	}
	for _, outcome := range []string{writeTaken, writeAway, writeGone, writeFailed} {
		counter(d.writes, s.Writes[outcome], outcome)
	}
	gauge(d.refused, s.Refused)
	counter(d.taken, s.Taken)
	counter(d.made, s.Made)
	counter(d.unsaved, s.Unsaved)
	gauge(d.running, s.Running)
	gauge(d.waiting, s.Waiting)
	gauge(d.queueFull, s.QueueFull)
	gauge(d.unreported, s.Unreported)
	counter(d.yielded, s.Yielded)
	counter(d.damaged, s.Damaged, "taken")
	counter(d.damaged, s.Runner.Corrupt, "checkpoint")
	counter(d.forgotten, s.ForgottenEarly)
	gauge(d.hanging, int(s.Runner.Hanging))
	counter(d.abandoned, s.Runner.Abandoned)
	counter(d.checkpoints, s.Runner.Unsaved)
	a := &s.Artifacts
	gauge(d.artifactBytes, int(a.Bytes))
	for reason, n := range map[string]uint64{"evicted": a.Evicted, "truncated": a.Truncated, "refused": a.Refused, "discarded": a.Discarded, "partial": a.Partial} {
		counter(d.artifactsLost, n, reason)
	}
}
