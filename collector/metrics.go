package collector

import "github.com/prometheus/client_golang/prometheus"

func skipsDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_program_skips_total",
		"Runs of a BPF program that the kernel skipped because it was running on that CPU already. Those that lose a record count in kernosis_records_lost_total too; of others a failure's detail may be missing.",
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
			st.log.Debug("skipped runs of programs can't be read", "error", err)
			continue
		}
		for _, of := range skips {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(of.Runs), st.name, of.Program)
		}
	}
}
