package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Checks holds the metrics of check programs. Its methods are safe for concurrent use.
type Checks struct {
	runs      *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	truncated *prometheus.CounterVec
}

// NewChecks registers the metrics of check programs.
func NewChecks(r prometheus.Registerer) *Checks {
	with := promauto.With(r)
	return &Checks{
		runs: with.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_check_runs_total", Help: "Runs of check programs, by status (ok, problem, unknown).",
		}, []string{"check", "status"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kernosis_check_duration_seconds", Help: "Duration of check program runs.",
			// A shell that only exits takes 1 ms; only time limits are longer than a minute.
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 60},
		}, []string{"check"}),
		truncated: with.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_check_output_truncated_bytes_total", Help: "Bytes of check program output that messages omit.",
		}, []string{"check"}),
	}
}

// Known adds zeros for a check before its first run. The checks come from the configuration,
// which bounds their number.
func (c *Checks) Known(check string, statuses ...string) {
	for _, s := range statuses {
		c.runs.WithLabelValues(check, s)
	}
	c.seconds.WithLabelValues(check)
	c.truncated.WithLabelValues(check)
}

// Result counts one run.
func (c *Checks) Result(check, status string, took time.Duration, truncated uint64) {
	c.runs.WithLabelValues(check, status).Inc()
	c.seconds.WithLabelValues(check).Observe(took.Seconds())
	c.truncated.WithLabelValues(check).Add(float64(truncated))
}
