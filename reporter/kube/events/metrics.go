package events

import "github.com/prometheus/client_golang/prometheus"

// descs are the descriptors of the metrics of Events. Requests are counted elsewhere, together
// with those of other objects.
type descs struct {
	happened, dropped, unreported, lost, series, waiting *prometheus.Desc
}

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return descs{
		happened:   desc("kernosis_events_occurred_total", "Occurrences that belong in Events on the node, by rule: those counted in Events, and dropped ones.", "rule"),
		dropped:    desc("kernosis_events_dropped_total", "Occurrences that are not counted in any Event, by rule and reason.", "rule", "reason"),
		unreported: desc("kernosis_events_not_on_pod_total", "Occurrences that are counted in the node's Event but not in one of the pod, by rule and reason.", "rule", "reason"),
		lost:       desc("kernosis_events_lost_entries_total", "Journal entries that were lost before their Events could be created."),
		series:     desc("kernosis_event_series", "Events whose count the agent is updating."),
		waiting:    desc("kernosis_event_series_waiting", "Events whose latest count the API server does not have."),
	}
}

// Describe implements prometheus.Collector.
func (k *Sink) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, d := range []*prometheus.Desc{d.happened, d.dropped, d.unreported, d.lost, d.series, d.waiting} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (k *Sink) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	d, s := newDescs(), k.Stats()
	for rule, r := range s.Rules {
		counter(d.happened, r.Happened, rule)
		for reason, n := range r.Dropped {
			counter(d.dropped, n, rule, reason)
		}
		for reason, n := range r.Unreported {
			counter(d.unreported, n, rule, reason)
		}
	}
	counter(d.lost, s.LostEntries)
	gauge(d.series, s.Series)
	gauge(d.waiting, s.Waiting)
}
