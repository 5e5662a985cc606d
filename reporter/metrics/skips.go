package metrics

import "github.com/prometheus/client_golang/prometheus"

// ProgramSkips is how many runs of one BPF program the kernel skipped.
type ProgramSkips struct {
	Stem, Program string
	Runs          uint64
}

// Skips registers the counter of skipped runs, read at each scrape.
func (m *Metrics) Skips(skips func() []ProgramSkips) {
	m.Own.MustRegister(&skipCollector{skips: skips, desc: prometheus.NewDesc("kernosis_program_skips_total",
		"Runs of a BPF program that the kernel skipped because it was running on that CPU already. Those that lose a record count in kernosis_records_lost_total too; of others a failure's detail may be missing.",
		[]string{"stem", "program"}, nil)})
}

// skipCollector implements prometheus.Collector.
type skipCollector struct {
	skips func() []ProgramSkips
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *skipCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *skipCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.skips() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(s.Runs), s.Stem, s.Program)
	}
}
