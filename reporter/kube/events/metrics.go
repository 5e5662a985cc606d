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
		happened:   desc("kernosis_events_occurred_total", "Occurrences that belong into Events on the node, by rule: those that Events count, and dropped ones.", "rule"),
		dropped:    desc("kernosis_events_dropped_total", "Occurrences that no Event counts, by rule and reason.", "rule", "reason"),
		unreported: desc("kernosis_events_not_on_pod_total", "Occurrences that the node's Event counts but none of the pod, by rule and reason.", "rule", "reason"),
		lost:       desc("kernosis_events_lost_entries_total", "Journal entries that were gone before their Events could be made."),
		series:     desc("kernosis_event_series", "Events that the agent is counting in."),
		waiting:    desc("kernosis_event_series_waiting", "Events of which the API server does not have the latest count."),
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
