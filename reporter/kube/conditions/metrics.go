package conditions

import "github.com/prometheus/client_golang/prometheus"

// descs are the descriptors of the metrics of conditions. Writes are counted elsewhere, together
// with those of other objects.
type descs struct {
	bytes, flips, contested, yielded, removed, refused, trimmed, pending *prometheus.Desc
}

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return descs{
		bytes:     desc("kernosis_api_condition_bytes_total", "Bytes sent in patches of conditions."),
		flips:     desc("kernosis_condition_flips_total", "Conditions of the agent that other clients overwrote or removed."),
		contested: desc("kernosis_condition_contested_total", "Times that a condition type was left to another client."),
		yielded:   desc("kernosis_conditions_yielded", "Condition types that are left to other clients now."),
		removed:   desc("kernosis_conditions_removed_total", "Conditions removed from the node because no rule has them anymore."),
		refused:   desc("kernosis_conditions_refused_total", "Conditions that were refused because the agent can't own them."),
		trimmed:   desc("kernosis_condition_fields_changed_total", "Reasons and messages of conditions that were cut or escaped."),
		pending:   desc("kernosis_conditions_pending", "1 while the API server does not have the current conditions."),
	}
}

// Describe implements prometheus.Collector.
func (p *Patcher) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, d := range []*prometheus.Desc{d.bytes, d.flips, d.contested, d.yielded, d.removed, d.refused, d.trimmed, d.pending} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Patcher) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	d, s := newDescs(), p.Stats()
	counter(d.bytes, s.Bytes)
	counter(d.flips, s.Flips)
	counter(d.contested, s.Contested)
	gauge(d.yielded, len(s.Yielded))
	counter(d.removed, s.Removed)
	counter(d.refused, s.Refused)
	counter(d.trimmed, s.Trimmed)
	pending := 0
	if s.Pending {
		pending = 1
	}
	gauge(d.pending, pending)
}
