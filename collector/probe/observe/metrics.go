package observe

import "github.com/prometheus/client_golang/prometheus"

// descs are the descriptors of the metrics of observed probes.
type descs struct{ outcomes, polls, asks, places *prometheus.Desc }

func newDescs() descs {
	return descs{
		outcomes: prometheus.NewDesc("kernosis_probe_observations_total",
			"Connections to probed addresses, and failures that kubelet counts, by outcome.", []string{"outcome"}, nil),
		polls: prometheus.NewDesc("kernosis_probe_kubelet_polls_total", "Requests to kubelet for its counts of probes, by outcome.", []string{"outcome"}, nil),
		asks: prometheus.NewDesc("kernosis_probe_event_lists_total",
			"Requests to the API server for kubelet's Events on a pod, by outcome; skipped: not sent, to limit load.", []string{"outcome"}, nil),
		places: prometheus.NewDesc("kernosis_probe_places",
			"Addresses and ports whose connections are watched; unwatched: network probes that target a host name.", []string{"state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, d := range []*prometheus.Desc{d.outcomes, d.polls, d.asks, d.places} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	d, s := newDescs(), o.Stats()
	counter := func(d *prometheus.Desc, n uint64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	for outcome, n := range map[string]uint64{
		"taken": s.Taken, "counted-by-kubelet": s.Counted, "not-due": s.Refused, "not-kubelet": s.Others, "repeated": s.Repeated,
		"not-counted-by-kubelet": s.Uncounted, "pod-gone": s.Late, "guessed": s.Guessed, "held": s.Held, "unsure": s.Unsure, "no-room-to-hold": s.Overflowed,
	} {
		counter(d.outcomes, n, outcome)
	}
	counter(d.polls, s.Polls-min(s.Polls, s.PollErrors), "answered")
	counter(d.polls, s.PollErrors, "failed")
	counter(d.asks, s.Asked, "asked")
	counter(d.asks, s.Unasked, "skipped")
	ch <- prometheus.MustNewConstMetric(d.places, prometheus.GaugeValue, float64(s.Targets), "watched")
	ch <- prometheus.MustNewConstMetric(d.places, prometheus.GaugeValue, float64(s.Unwatched), "unwatched")
}
