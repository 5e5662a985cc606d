package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/detector/problem"
)

// Metrics holds the agent's metrics. Its methods are safe for concurrent use.
type Metrics struct {
	Registry *prometheus.Registry
	// Own registers metrics named kernosis_ and adds the label node to them.
	Own prometheus.Registerer

	events      *prometheus.CounterVec
	lost        *prometheus.CounterVec
	problems    *prometheus.CounterVec
	occurrences *prometheus.CounterVec
	firing      *prometheus.GaugeVec
	info        *prometheus.GaugeVec
	condition   *prometheus.GaugeVec
	sourceUp    *prometheus.GaugeVec
	degraded    *prometheus.GaugeVec
	latency     prometheus.Histogram
	evaluation  prometheus.Histogram
	ruleErrors  *prometheus.GaugeVec
	groupsOver  *prometheus.GaugeVec
	limited     *prometheus.GaugeVec
	roomless    prometheus.Gauge
	outputError prometheus.Counter

	mu     sync.Mutex
	series map[*prometheus.GaugeVec]map[labels]struct{} // the series that replace has set, by gauge
	losses map[labels]uint64                            // the values of lost
}

// New registers the agent's and the Go runtime's metrics in a new registry. The agent's metrics carry
// the label node unless node is empty; metrics named as node-problem-detector's do not, as there.
func New(version, node string) *Metrics {
	registry := prometheus.NewRegistry()
	own := prometheus.Registerer(registry)
	if node != "" {
		own = prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, registry)
	}
	with := promauto.With(own)
	counter := func(name, help string, labelNames ...string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labelNames)
	}
	gauge := func(name, help string, labelNames ...string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labelNames)
	}
	m := &Metrics{
		Registry: registry, Own: own,
		series: map[*prometheus.GaugeVec]map[labels]struct{}{}, losses: map[labels]uint64{},
		events:      counter("kernosis_events_total", "Events that reached the engine, by kind.", "kind"),
		lost:        counter("kernosis_records_lost_total", "Kernel records and log lines that were lost, by source and reason (ring-full, recursion, malformed, foreign-wire; for logs also overrun, truncated, rotated, rate-limit and others).", "stem", "reason"),
		problems:    counter("kernosis_problem_transitions_total", "State changes of problems, by rule, reason and the state entered; a temporary problem enters firing at each occurrence.", "rule", "reason", "state"),
		occurrences: counter("kernosis_problem_occurrences_total", "Occurrences of problems, counted as in problem_counter, by rule, reason and severity.", "rule", "reason", "severity"),
		firing:      gauge("kernosis_problems", "Problems that are firing now, by rule.", "rule"),
		info:        gauge("kernosis_problem_info", "1 for each problem that is firing now, with the pod, device or task that it affects; at most 100, the most severe first.", "rule", "reason", "severity", "subject"),
		condition:   gauge("kernosis_condition", "1 for the status a node condition has now, 0 for the others.", "type", "status"),
		sourceUp:    gauge("kernosis_source_up", "1 if the source can detect its faults, 0 if it is blind.", "stem"),
		degraded:    gauge("kernosis_degraded", "1 for each degraded part of the agent, by reason (ProgramsNotLoaded, MissingHostPath, MissingRights).", "part", "reason"),
		latency: with.NewHistogram(prometheus.HistogramOpts{
			Name: "kernosis_detection_latency_seconds", Help: "Time from the kernel's timestamp of a fault until the agent has handled it.",
			// 10 µs … 10 s: less is clock noise, more is an outage.
			Buckets: prometheus.ExponentialBucketsRange(10e-6, 10, 19),
		}),
		evaluation: with.NewHistogram(prometheus.HistogramOpts{
			Name: "kernosis_rule_evaluation_seconds", Help: "Time to evaluate all rules for one event.",
			Buckets: prometheus.ExponentialBuckets(250e-9, 4, 9), // 250 ns … 16 ms
		}),
		ruleErrors: gauge("kernosis_rule_errors", "Evaluations of a rule that failed since the agent started.", "rule"),
		groupsOver: gauge("kernosis_rule_groups_overflowed", "Events beyond a rule's limit of groups since the agent started.", "rule"),
		limited:    gauge("kernosis_rule_events_limited", "Events beyond a rule's rateLimit since the agent started, which were recorded together.", "rule"),
		roomless: with.NewGauge(prometheus.GaugeOpts{
			Name: "kernosis_sources_overflowed", Help: "Events of sources beyond the limit of sources since the agent started.",
		}),
		outputError: with.NewCounter(prometheus.CounterOpts{
			Name: "kernosis_output_errors_total", Help: "Lines that could not be written to the standard output.",
		}),
	}
	gauge("kernosis_build_info", "Always 1; the version is in the label.", "version").WithLabelValues(version).Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, k := range event.Kinds() {
		m.events.WithLabelValues(string(k)) // export zeros from the start
	}
	return m
}

// Event counts one event that reached the engine.
func (m *Metrics) Event(ev *event.Event, evaluation time.Duration) {
	m.events.WithLabelValues(string(ev.Kind)).Add(float64(ev.Occurrences()))
	m.evaluation.Observe(evaluation.Seconds())
	switch {
	case ev.Lost != nil:
		m.lost.WithLabelValues(ev.Lost.Stem, ev.Lost.Reason).Add(float64(ev.Lost.Count))
		m.mu.Lock()
		defer m.mu.Unlock()
		m.losses[labels{ev.Lost.Stem, ev.Lost.Reason}] += ev.Lost.Count
	case ev.Check != nil:
		stem := event.NamedStem(event.CheckStem, ev.Check.Check)
		m.sourceUp.WithLabelValues(stem).Set(boolean(ev.Check.Status != event.CheckUnknown))
	case ev.SourceUp != nil && ev.SourceUp.Stem == event.LogStem:
		// A log that is not configured is not a source.
	case ev.SourceUp != nil && ev.SourceUp.Gone:
		m.sourceUp.DeleteLabelValues(ev.SourceUp.Stem)
	case ev.SourceUp != nil:
		m.sourceUp.WithLabelValues(ev.SourceUp.Stem).Set(boolean(ev.SourceUp.Up))
	}
}

// Loss is how many records or lines a source lost for one reason.
type Loss struct {
	Stem, Reason string
	Count        uint64
}

// Losses returns the values of kernosis_records_lost_total, in no order.
func (m *Metrics) Losses() []Loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Loss, 0, len(m.losses))
	for l, n := range m.losses {
		out = append(out, Loss{Stem: l[0], Reason: l[1], Count: n})
	}
	return out
}

// Handled observes the time from a kernel record's timestamp until it was journaled and printed.
func (m *Metrics) Handled(d time.Duration) { m.latency.Observe(d.Seconds()) }

// Transition counts one change that the engine reported.
func (m *Metrics) Transition(t problem.Transition) {
	switch {
	case t.Again:
	case t.Problem != nil:
		m.problems.WithLabelValues(t.Problem.Rule, t.Problem.Reason, string(t.Problem.State)).Add(float64(t.Occurrences()))
		if began(t) {
			m.occurrences.WithLabelValues(t.Problem.Rule, t.Problem.Reason, string(t.Problem.Severity)).Add(float64(t.Occurrences()))
		}
	case t.Condition != nil:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.set(m.condition, 2, statuses(t.Condition))
	}
}

// Conditions sets all existing conditions: after a start, before any has changed, and after a
// change of rules, which may have removed some.
func (m *Metrics) Conditions(all []problem.Condition) {
	series := map[labels]float64{}
	for i := range all {
		maps.Copy(series, statuses(&all[i]))
	}
	m.replace(m.condition, 2, series)
}

func statuses(c *problem.Condition) map[labels]float64 {
	series := map[labels]float64{}
	for _, s := range []problem.Status{problem.True, problem.False, problem.Unknown} {
		series[labels{c.Type, string(s)}] = boolean(s == c.Status)
	}
	return series
}

// Degraded sets the degraded parts of the agent; all others are not degraded.
func (m *Metrics) Degraded(lacks []selfcheck.Lack) {
	series := map[labels]float64{}
	for _, l := range lacks {
		series[labels{l.Part, string(l.Reason)}] = 1
	}
	m.replace(m.degraded, 2, series)
}

// Rules sets counts of each rule since the agent started: failed evaluations, events beyond its
// limit of groups, and events beyond its rate limit.
func (m *Metrics) Rules(evalErrors, overflow, limited map[string]uint64) {
	for gauge, counts := range map[*prometheus.GaugeVec]map[string]uint64{
		m.ruleErrors: evalErrors, m.groupsOver: overflow, m.limited: limited,
	} {
		for rule, n := range counts {
			gauge.WithLabelValues(rule).Set(float64(n))
		}
	}
}

// Roomless sets how many events came from sources beyond the limit of sources.
func (m *Metrics) Roomless(n uint64) { m.roomless.Set(float64(n)) }

// OutputErrors counts lines that could not be written.
func (m *Metrics) OutputErrors(lines int) { m.outputError.Add(float64(lines)) }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
