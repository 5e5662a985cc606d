package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/probe"
)

// Describe implements prometheus.Collector.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) { o.export(probe.Exporter{Descs: ch}) }

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) { o.export(probe.Exporter{Metrics: ch}) }

func (o *Observer) export(to probe.Exporter) {
	s, metric := o.Stats(), to.Metric
	outcomes := metric(prometheus.CounterValue, "kernosis_probe_observations_total",
		"Connections to probed addresses, and failures that kubelet counts, by outcome.", "outcome")
	for outcome, n := range map[string]uint64{
		"taken": s.Taken, "counted-by-kubelet": s.Counted, "not-due": s.Refused, "not-kubelet": s.Others, "repeated": s.Repeated,
		"not-counted-by-kubelet": s.Uncounted, "pod-gone": s.Late, "guessed": s.Guessed, "held": s.Held, "unsure": s.Unsure, "no-room-to-hold": s.Overflowed,
	} {
		outcomes(float64(n), outcome)
	}
	polls := metric(prometheus.CounterValue, "kernosis_probe_kubelet_polls_total",
		"Requests to kubelet for its counts of probes, by outcome.", "outcome")
	polls(float64(s.Polls-min(s.Polls, s.PollErrors)), "answered")
	polls(float64(s.PollErrors), "failed")
	asks := metric(prometheus.CounterValue, "kernosis_probe_event_lists_total",
		"Requests to the API server for kubelet's Events on a pod, by outcome; skipped: not sent, to limit load.", "outcome")
	asks(float64(s.Asked), "asked")
	asks(float64(s.Unasked), "skipped")
	places := metric(prometheus.GaugeValue, "kernosis_probe_places",
		"Addresses and ports whose connections are watched; unwatched: network probes that target a host name.", "state")
	places(float64(s.Targets), "watched")
	places(float64(s.Unwatched), "unwatched")
}
