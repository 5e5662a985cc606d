package netlook

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the metrics of this process's requests to the kernel, read at each scrape.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kernosis_lookups_late_total", Help: "Queries about a network namespace that the kernel did not answer in time.",
		}, func() float64 { return float64(calls.Stats().Late) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kernosis_lookups_refused_total", Help: "Queries about a network namespace that were skipped because the kernel still holds earlier ones.",
		}, func() float64 { return float64(calls.Stats().Refused) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kernosis_lookups_held", Help: "Threads that the kernel holds in a query about a network namespace.",
		}, func() float64 { return float64(calls.Stats().Behind) }),
	}
}
