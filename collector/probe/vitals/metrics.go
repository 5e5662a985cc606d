package vitals

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the watcher's metric.
func (w *Watcher) Metrics() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "kernosis_probe_looks_skipped_total", Help: "Failures whose container was not examined because there were too many at once.",
	}, func() float64 { return float64(w.Skipped()) })
}
