package ingest

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcome is the result of a report.
type Outcome string

// The outcomes; all except the first are refusals.
const (
	Accepted  Outcome = "accepted"
	Invalid   Outcome = "invalid"     // 400, also for bodies that are no reports
	Forbidden Outcome = "forbidden"   // 403: user, source or condition is not configured
	Conflict  Outcome = "conflict"    // 409: the condition belongs to another source or a rule
	TooLarge  Outcome = "too-large"   // 413
	RateLimit Outcome = "rate"        // 429
	Closing   Outcome = "unavailable" // 503: the agent is starting or stopping
)

// counts are the counters of each source since the start; reports of unknown sources have source "".
type counts struct {
	all                                         *prometheus.Registry
	reports, events, changes, expired, warnings *prometheus.CounterVec
}

func newCounts(sources []Source) counts {
	all := prometheus.NewRegistry()
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(all).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"source"}, labels...))
	}
	c := counts{
		all:      all,
		reports:  vec("kernosis_reports_total", "Reports of problem daemons, by outcome (accepted, or refused: invalid, forbidden, conflict, too-large, rate, unavailable); source is empty if it is not configured or the user may not report for it.", "outcome"),
		events:   vec("kernosis_report_events_total", "Events in accepted reports, including those that were sent twice and count once."),
		changes:  vec("kernosis_report_condition_changes_total", "Conditions in accepted reports whose status or reason had changed."),
		expired:  vec("kernosis_report_conditions_expired_total", "Conditions that became Unknown because they were not reported again in time."),
		warnings: vec("kernosis_report_fields_changed_total", "Fields of accepted reports that were cut or escaped."),
	}
	for _, s := range append([]Source{{}}, sources...) {
		for _, o := range []Outcome{Accepted, Invalid, Forbidden, Conflict, TooLarge, RateLimit, Closing} {
			c.reports.WithLabelValues(s.Name, string(o)) // so that the metric exists with value 0
		}
		if s.Name == "" {
			continue
		}
		for _, v := range []*prometheus.CounterVec{c.events, c.changes, c.expired, c.warnings} {
			v.WithLabelValues(s.Name)
		}
	}
	return c
}

// Metrics returns the counters of all sources.
func (in *Intake) Metrics() prometheus.Collector { return in.counts.all }
