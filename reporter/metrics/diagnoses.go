package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DiagnoseStats is what has been counted of diagnoses since the agent started.
type DiagnoseStats struct {
	Triggers map[string]TriggerStats // by name
	Refused  int                     // triggers that are left aside
	Taken    uint64
	Made     uint64
	Dropped  map[string]uint64 // by reason
	Ended    map[string]uint64 // by phase
	Writes   map[string]uint64 // by outcome
	Unsaved  uint64

	Running, Waiting, QueueFull, Untold int
}

// TriggerStats is what has been counted of one trigger.
type TriggerStats struct {
	Wanted   uint64
	Withheld map[string]uint64 // by reason
}

// Diagnoses observes how long diagnoses take. It is safe for concurrent use.
type Diagnoses struct {
	latency prometheus.Histogram
}

// Diagnoses registers the metrics of diagnoses; the counters are read at each scrape.
func (m *Metrics) Diagnoses(stats func() DiagnoseStats) *Diagnoses {
	d := &Diagnoses{latency: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kernosis_diagnosis_latency_seconds", Help: "Time from a problem's being told to the end of its diagnosis.",
		// 10 ms is a look or two; minutes are operations that wait.
		Buckets: []float64{.01, .03, .1, .3, 1, 2, 3, 5, 10, 30, 60, 300},
	})}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.Own.MustRegister(d.latency, &diagnoseCollector{
		stats:     stats,
		wanted:    desc("kernosis_trigger_diagnoses_total", "Diagnoses that triggers have asked for, by trigger.", "trigger"),
		withheld:  desc("kernosis_trigger_withheld_total", "Diagnoses that a trigger would have asked for, but for its bounds, by trigger and reason.", "trigger", "reason"),
		refused:   desc("kernosis_triggers_refused", "Triggers that are left aside because something is wrong with them."),
		taken:     desc("kernosis_diagnoses_taken_total", "Diagnoses that this node was to run, of its own triggers and others."),
		made:      desc("kernosis_diagnoses_made_total", "Diagnoses of own triggers that the API server has; without a cluster, that are known."),
		dropped:   desc("kernosis_diagnoses_dropped_total", "Diagnoses that were not run or not made known, by reason.", "reason"),
		ended:     desc("kernosis_diagnoses_ended_total", "Diagnoses that have ended, by phase.", "phase"),
		writes:    desc("kernosis_diagnosis_writes_total", "Writes of a Diagnosis' status, by outcome (taken, away, gone, failed).", "outcome"),
		unsaved:   desc("kernosis_diagnosis_unsaved_total", "Notes of what is to be run that could not be written to the disk."),
		running:   desc("kernosis_diagnoses_running", "Diagnoses of which an operation runs now."),
		waiting:   desc("kernosis_diagnoses_waiting", "Diagnoses that wait: for others, for the API server, or for a decision."),
		queueFull: desc("kernosis_diagnoses_queue_full", "Diagnoses that the node has not taken yet, because too many of their namespace have not ended."),
		untold:    desc("kernosis_diagnoses_untold", "Diagnoses that have ended, of which the API server does not know."),
	})
	return d
}

// Ended observes the time from a problem to the end of its diagnosis.
func (d *Diagnoses) Ended(after time.Duration) { d.latency.Observe(after.Seconds()) }

// diagnoseCollector implements prometheus.Collector.
type diagnoseCollector struct {
	stats func() DiagnoseStats

	wanted, withheld, refused, taken, made, dropped, ended, writes, unsaved, running, waiting, queueFull, untold *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *diagnoseCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.wanted, c.withheld, c.refused, c.taken, c.made, c.dropped, c.ended, c.writes, c.unsaved, c.running, c.waiting, c.queueFull, c.untold,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *diagnoseCollector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	s := c.stats()
	for name, t := range s.Triggers {
		counter(c.wanted, t.Wanted, name)
		for reason, n := range t.Withheld {
			counter(c.withheld, n, name, reason)
		}
	}
	for d, by := range map[*prometheus.Desc]map[string]uint64{c.dropped: s.Dropped, c.ended: s.Ended, c.writes: s.Writes} {
		for label, n := range by {
			counter(d, n, label)
		}
	}
	gauge(c.refused, s.Refused)
	counter(c.taken, s.Taken)
	counter(c.made, s.Made)
	counter(c.unsaved, s.Unsaved)
	gauge(c.running, s.Running)
	gauge(c.waiting, s.Waiting)
	gauge(c.queueFull, s.QueueFull)
	gauge(c.untold, s.Untold)
}
