package ingest

import "github.com/prometheus/client_golang/prometheus"

// descs are the metrics of reports.
type descs struct{ reports, events, changes, expired, warnings *prometheus.Desc }

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"source"}, labels...), nil)
	}
	return descs{
		reports:  desc("kernosis_reports_total", "Reports of problem daemons, by outcome (accepted, or refused: invalid, forbidden, conflict, too-large, rate, unavailable); without a source those of none that is configured, or by a user who may not.", "outcome"),
		events:   desc("kernosis_report_events_total", "Events in accepted reports, those included that were sent twice and count once."),
		changes:  desc("kernosis_report_condition_changes_total", "Conditions in accepted reports whose status or reason had changed."),
		expired:  desc("kernosis_report_conditions_expired_total", "Conditions that became Unknown because they were not reported again in time."),
		warnings: desc("kernosis_report_fields_changed_total", "Fields of accepted reports that were cut or escaped."),
	}
}

// Describe implements prometheus.Collector.
func (in *Intake) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, d := range []*prometheus.Desc{d.reports, d.events, d.changes, d.expired, d.warnings} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (in *Intake) Collect(ch chan<- prometheus.Metric) {
	d := newDescs()
	for _, s := range in.Stats() {
		counter := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{s.Source}, labels...)...)
		}
		for outcome, n := range s.Reports {
			counter(d.reports, n, string(outcome))
		}
		if s.Source == "" {
			continue
		}
		counter(d.events, s.Events)
		counter(d.changes, s.Changes)
		counter(d.expired, s.Expired)
		counter(d.warnings, s.Warnings)
	}
}

// Metrics returns the server's own metric.
func (s *Server) Metrics() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "kernosis_report_connections_refused_total", Help: "Connections to the report socket that were closed because their user had too many.",
	}, func() float64 { return float64(s.RefusedConnections()) })
}
