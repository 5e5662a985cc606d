package start

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/diagnose/trigger"
)

// counts are the part's metrics.
type counts struct {
	*prometheus.Registry                                      // of these metrics alone; registered with the process' own
	diagnoses                          *prometheus.CounterVec // by trigger and outcome
	retries, matched, dropped, damaged prometheus.Counter
	forgotten, scheduleFailed          prometheus.Counter
	saves                              *prometheus.CounterVec // by outcome
	watches, stateBytes, stateSaved    prometheus.Gauge
	inUse, notInUse                    *prometheus.GaugeVec // by source, by reason

	mu    sync.Mutex
	names map[string]bool // of the triggers in force
}

func newCounts(p *Part) *counts {
	own := prometheus.NewRegistry()
	factory := promauto.With(own)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	c := &counts{
		Registry:       own,
		diagnoses:      counters("kernosis_trigger_diagnoses_total", "Diagnoses that were wanted, by what became of them. exists: it was made before, refused: by the API server, given_up: it could not be made for an hour.", "trigger", "outcome"),
		retries:        counter("kernosis_trigger_retries_total", "Times that a Diagnosis could not be made and was to be tried again."),
		matched:        counter("kernosis_trigger_events_matched_total", "Events of the cluster that a Trigger is about, each time they were reported."),
		dropped:        counter("kernosis_trigger_events_dropped_total", "Of these, those that were dropped because too many waited."),
		damaged:        counter("kernosis_trigger_state_damaged_total", "Times that what triggers remember could not be read and was begun anew."),
		forgotten:      counter("kernosis_trigger_state_left_out_total", "Memories of triggers that were not saved because there was no room."),
		scheduleFailed: counter("kernosis_trigger_schedule_status_failures_total", "Times that the latest time of a schedule could not be written to its Trigger."),
		saves:          counters("kernosis_trigger_state_saves_total", "Times that what triggers remember was to be saved. superseded: another controller leads.", "outcome"),
		watches:        gauge("kernosis_trigger_event_watch", "1 while the cluster's Events are watched: some Trigger is about Events."),
		stateBytes:     gauge("kernosis_trigger_state_bytes", "Size of what triggers remember, as it is saved."),
		stateSaved:     gauge("kernosis_trigger_state_saved_timestamp_seconds", "When what triggers remember was saved last."),
		inUse:          gauges("kernosis_triggers", "Triggers in force at the controller, by source.", "source"),
		notInUse:       gauges("kernosis_triggers_left_out", "Triggers of the controller that are not in force. invalid: their status says why, too_many: more than can be.", "reason"),
	}
	for _, o := range []string{"saved", "failed", "superseded"} {
		c.saves.WithLabelValues(o)
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{Name: "kernosis_trigger_queue_length", Help: "Diagnoses that wait to be made."},
		func() float64 { return float64(p.queue.length()) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{Name: "kernosis_trigger_ready", Help: "1 while alerts, Events and times start Diagnoses here: this instance leads."},
		func() float64 {
			if p.Ready() != nil {
				return 0
			}
			return 1
		})
	own.MustRegister(newEngineStats(p))
	return c
}

// installed reports which Triggers are in force, and drops the metrics of deleted ones.
func (c *counts) installed(all []*trigger.Matcher, refused, over int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, sources := make(map[string]bool, len(all)), map[trigger.Source]int{}
	for _, m := range all {
		names[m.Name()] = true
		sources[m.Source()]++
	}
	for name := range c.names {
		if !names[name] {
			c.diagnoses.DeletePartialMatch(prometheus.Labels{"trigger": name})
		}
	}
	c.names = names
	for _, s := range []trigger.Source{trigger.SourceAlert, trigger.SourceEvent, trigger.SourceCron} {
		c.inUse.WithLabelValues(string(s)).Set(float64(sources[s]))
	}
	c.notInUse.WithLabelValues("invalid").Set(float64(refused))
	c.notInUse.WithLabelValues("too_many").Set(float64(over))
}

// engineStats exports the engine's counters at each scrape.
type engineStats struct {
	part                                    *Part
	wanted, withheld, remembered, forgotten *prometheus.Desc
}

func newEngineStats(p *Part) *engineStats {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &engineStats{
		part:       p,
		wanted:     d("kernosis_trigger_wanted_total", "Diagnoses that a Trigger wanted.", "trigger"),
		withheld:   d("kernosis_trigger_withheld_total", "Diagnoses that a Trigger asked for and that were not made, by reason.", "trigger", "reason"),
		remembered: d("kernosis_trigger_remembered", "What is remembered: streams are alerts and Events, subjects are what Diagnoses were about.", "kind"),
		forgotten:  d("kernosis_trigger_forgotten_early_total", "Subjects that were forgotten for want of room while their cooldown lasted."),
	}
}

// Describe implements [prometheus.Collector].
func (c *engineStats) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.wanted, c.withheld, c.remembered, c.forgotten} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *engineStats) Collect(out chan<- prometheus.Metric) {
	var s trigger.Stats
	c.part.look(func(e *trigger.Engine) { s = e.Stats() })
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	for name, t := range s.Triggers {
		counter(c.wanted, t.Started, name)
		for reason, n := range t.Withheld {
			counter(c.withheld, n, name, reason)
		}
	}
	counter(c.forgotten, s.ForgottenEarly)
	for kind, n := range map[string]int{"streams": s.Streams, "subjects": s.Subjects} {
		out <- prometheus.MustNewConstMetric(c.remembered, prometheus.GaugeValue, float64(n), kind)
	}
}
