package start

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/web"
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
		diagnoses:      counters("kernosis_trigger_diagnoses_total", "Diagnoses that were requested, by outcome. exists: it was created before, refused: by the API server, given_up: it could not be created for an hour.", "trigger", "outcome"),
		retries:        counter("kernosis_trigger_retries_total", "Failed attempts to create a Diagnosis that were to be retried."),
		matched:        counter("kernosis_trigger_events_matched_total", "Events of the cluster that matched a Trigger, counted each time they were reported."),
		dropped:        counter("kernosis_trigger_events_dropped_total", "Matching Events that were dropped because too many were waiting."),
		damaged:        counter("kernosis_trigger_state_damaged_total", "Times that the saved trigger state could not be read, so triggers started over."),
		forgotten:      counter("kernosis_trigger_state_left_out_total", "Entries of the trigger state that were not saved because there was no room."),
		scheduleFailed: counter("kernosis_trigger_schedule_status_failures_total", "Failed writes of a schedule's latest time to its Trigger."),
		saves:          counters("kernosis_trigger_state_saves_total", "Attempts to save the trigger state, by outcome. superseded: another controller leads.", "outcome"),
		watches:        gauge("kernosis_trigger_event_watch", "1 while the cluster's Events are watched because a Trigger needs them."),
		stateBytes:     gauge("kernosis_trigger_state_bytes", "Size of the saved trigger state."),
		stateSaved:     gauge("kernosis_trigger_state_saved_timestamp_seconds", "When the trigger state was last saved."),
		inUse:          gauges("kernosis_triggers", "Triggers in force at the controller, by source.", "source"),
		notInUse:       gauges("kernosis_triggers_left_out", "Triggers of the controller that are not in force. invalid: their status says why, too_many: over the limit.", "reason"),
	}
	for _, o := range []string{"saved", "failed", "superseded"} {
		c.saves.WithLabelValues(o)
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{Name: "kernosis_trigger_queue_length", Help: "Diagnoses that are waiting to be created."},
		func() float64 { return float64(p.queue.length()) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{Name: "kernosis_trigger_ready", Help: "1 while this instance leads, so that alerts, Events and schedules start Diagnoses here."},
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
		wanted:     d("kernosis_trigger_wanted_total", "Diagnoses that a Trigger requested.", "trigger"),
		withheld:   d("kernosis_trigger_withheld_total", "Diagnoses that a Trigger requested and that were not created, by reason.", "trigger", "reason"),
		remembered: d("kernosis_trigger_remembered", "Entries of the trigger state. streams: alerts and Events, subjects: what Diagnoses were about.", "kind"),
		forgotten:  d("kernosis_trigger_forgotten_early_total", "Subjects that were forgotten during their cooldown for lack of space."),
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

// alertCounts are the metrics of the server that receives alerts.
type alertCounts struct {
	*prometheus.Registry                              // of these metrics alone; registered with the part's
	requests                   *prometheus.CounterVec // by code
	auth                       *prometheus.CounterVec // by method and outcome
	connections                *prometheus.CounterVec // closed, by reason
	invalid, omitted, received prometheus.Counter
}

// newAlertCounts returns the counters, and metrics of the server's certificate; nil: it has none.
func newAlertCounts(k *web.Keys) *alertCounts {
	c := &alertCounts{Registry: prometheus.NewRegistry()}
	factory := promauto.With(c)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	c.requests = counters("kernosis_alert_requests_total", "Requests from senders of alerts, by response code.", "code")
	c.auth = counters("kernosis_alert_authentications_total", "Requests, by authentication method and outcome.", "method", "outcome")
	for _, m := range []string{byToken, byCertificate} {
		c.auth.WithLabelValues(m, web.OutcomeAllowed)
		c.auth.WithLabelValues(m, web.OutcomeForbidden)
	}
	c.connections = counters("kernosis_alert_connections_closed_total", "Connections from senders of alerts that were closed. rate: their address connects too often, full: there were too many, and their address had the most.", "reason")
	c.connections.WithLabelValues(web.ClosedRate)
	c.connections.WithLabelValues(web.ClosedFull)
	c.received = factory.NewCounter(prometheus.CounterOpts{Name: "kernosis_alerts_received_total", Help: "Alerts that were accepted."})
	refused := counters("kernosis_alerts_refused_total", "Alerts that were left out. invalid: they can't be read, omitted: the sender left them out because of its own limit.", "reason")
	c.invalid, c.omitted = refused.WithLabelValues("invalid"), refused.WithLabelValues("omitted")
	if k == nil {
		return c
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kernosis_alert_certificate_expiry_timestamp_seconds", Help: "When the server's certificate expires.",
	}, func() float64 {
		expires, _ := k.State()
		return float64(expires.Unix())
	})
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "kernosis_alert_certificate_failed_reloads_total", Help: "Failed reloads of changed certificate files.",
	}, func() float64 {
		_, failed := k.State()
		return float64(failed)
	})
	return c
}

func (c *alertCounts) closed(reason string) { c.connections.WithLabelValues(reason).Inc() }

func (c *alertCounts) authenticated(method, outcome string) {
	c.auth.WithLabelValues(method, outcome).Inc()
}
