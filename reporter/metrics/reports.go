package metrics

import "github.com/prometheus/client_golang/prometheus"

// ReportStats is what has been counted of one problem daemon since the agent
// started. Source is empty for reports of none that is configured.
type ReportStats struct {
	Source                             string
	Reports                            map[string]uint64 // by outcome
	Events, Changes, Expired, Warnings uint64
}

// Reports registers the counters of the problem report interface, read at each
// scrape.
func (m *Metrics) Reports(stats func() []ReportStats, refusedConnections func() uint64) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"source"}, labels...), nil)
	}
	m.Own.MustRegister(&reportCollector{
		stats:    stats,
		reports:  desc("kernosis_reports_total", "Reports of problem daemons, by outcome (accepted, or refused: invalid, forbidden, conflict, too-large, rate, unavailable); without a source those of none that is configured, or by a user who may not.", "outcome"),
		events:   desc("kernosis_report_events_total", "Events in accepted reports, those included that were sent twice and count once."),
		changes:  desc("kernosis_report_condition_changes_total", "Conditions in accepted reports whose status or reason had changed."),
		expired:  desc("kernosis_report_conditions_expired_total", "Conditions that became Unknown because they were not reported again in time."),
		warnings: desc("kernosis_report_fields_changed_total", "Fields of accepted reports that were cut or escaped."),
	}, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "kernosis_report_connections_refused_total", Help: "Connections to the report socket that were closed because their user had too many.",
	}, func() float64 { return float64(refusedConnections()) }))
}

// reportCollector implements prometheus.Collector.
type reportCollector struct {
	stats func() []ReportStats

	reports, events, changes, expired, warnings *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *reportCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.reports, c.events, c.changes, c.expired, c.warnings} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *reportCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.stats() {
		counter := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{s.Source}, labels...)...)
		}
		for outcome, n := range s.Reports {
			counter(c.reports, n, outcome)
		}
		if s.Source == "" {
			continue
		}
		counter(c.events, s.Events)
		counter(c.changes, s.Changes)
		counter(c.expired, s.Expired)
		counter(c.warnings, s.Warnings)
	}
}
