package metrics

import "github.com/prometheus/client_golang/prometheus"

// ProbeStats is what became of what was seen of kubelet's probes.
type ProbeStats struct {
	Outcomes    map[string]uint64 // by what became of them
	Polls       uint64            // kubelet was asked for its counts
	PollErrors  uint64
	Asked       uint64 // the API server was asked for Events
	Unasked     uint64
	Places      int // that are watched
	Unwatched   int
	SkippedLook uint64
}

// Probes registers the counters of observed probes, read at each scrape.
func (m *Metrics) Probes(stats func() ProbeStats) {
	m.Own.MustRegister(&probeStats{
		stats: stats,
		outcomes: prometheus.NewDesc("kernosis_probe_observations_total",
			"Connections to where pods are probed, and failures that kubelet counts, by what became of them.", []string{"outcome"}, nil),
		polls: prometheus.NewDesc("kernosis_probe_kubelet_polls_total", "How often kubelet was asked for its counts of probes.", []string{"outcome"}, nil),
		asks: prometheus.NewDesc("kernosis_probe_event_lists_total",
			"How often the API server was asked for kubelet's Events on a pod; skipped: not, to spare it.", []string{"outcome"}, nil),
		places: prometheus.NewDesc("kernosis_probe_places",
			"Addresses and ports whose connections are watched; unwatched: network probes that go to a name.", []string{"state"}, nil),
		looks: prometheus.NewDesc("kernosis_probe_looks_skipped_total", "Failures at which the container was not looked at: too many at once.", nil, nil),
	})
}

type probeStats struct {
	stats                                func() ProbeStats
	outcomes, polls, asks, places, looks *prometheus.Desc
}

func (c *probeStats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.outcomes, c.polls, c.asks, c.places, c.looks} {
		ch <- d
	}
}

func (c *probeStats) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for outcome, n := range s.Outcomes {
		counter(c.outcomes, n, outcome)
	}
	counter(c.polls, s.Polls-min(s.Polls, s.PollErrors), "answered")
	counter(c.polls, s.PollErrors, "failed")
	counter(c.asks, s.Asked, "asked")
	counter(c.asks, s.Unasked, "skipped")
	counter(c.looks, s.SkippedLook)
	ch <- prometheus.MustNewConstMetric(c.places, prometheus.GaugeValue, float64(s.Places), "watched")
	ch <- prometheus.MustNewConstMetric(c.places, prometheus.GaugeValue, float64(s.Unwatched), "unwatched")
}
