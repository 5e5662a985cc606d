package conditions

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector.
func (p *Patcher) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector. Writes are counted elsewhere, together with those of other
// objects.
func (p *Patcher) Collect(ch chan<- prometheus.Metric) {
	value := func(kind prometheus.ValueType, v uint64, name, help string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, float64(v))
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	s := p.Stats()
	pending := uint64(0)
	if s.Pending {
		pending = 1
	}
	value(counter, s.Bytes, "kernosis_api_condition_bytes_total", "Bytes sent in patches of conditions.")
	value(counter, s.Flips, "kernosis_condition_flips_total", "Conditions of the agent that other clients overwrote or removed.")
	value(counter, s.Contested, "kernosis_condition_contested_total", "Times that a condition type was left to another client.")
	value(gauge, uint64(len(s.Yielded)), "kernosis_conditions_yielded", "Condition types that are left to other clients now.")
	value(counter, s.Removed, "kernosis_conditions_removed_total", "Conditions removed from the node because no rule has them anymore.")
	value(counter, s.Refused, "kernosis_conditions_refused_total", "Conditions that were refused because the agent can't own them.")
	value(counter, s.Trimmed, "kernosis_condition_fields_changed_total", "Reasons and messages of conditions that were cut or escaped.")
	value(gauge, pending, "kernosis_conditions_pending", "1 while the API server does not have the current conditions.")
}
