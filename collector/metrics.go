package collector

import "github.com/prometheus/client_golang/prometheus"

func skipsDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_program_skips_total",
		"Runs of a BPF program that the kernel skipped because it was already running on that CPU. Those that lose a record also count in kernosis_records_lost_total; others may lose details of a failure.",
		[]string{"stem", "program"}, nil)
}

// Describe implements prometheus.Collector.
func (s *Sources) Describe(ch chan<- *prometheus.Desc) { ch <- skipsDesc() }

// Collect implements prometheus.Collector.
func (s *Sources) Collect(ch chan<- prometheus.Metric) {
	desc := skipsDesc()
	for _, st := range s.stems {
		if st.err != nil {
			continue
		}
		skips, err := st.loaded.Skips()
		if err != nil {
			st.log.Debug("can't read skipped runs of programs", "error", err)
			continue
		}
		for _, of := range skips {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(of.Runs), st.name, of.Program)
		}
	}
}
