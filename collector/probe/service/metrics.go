package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/probe"
)

type descriptions struct{ up, probes, seconds *prometheus.Desc }

func describe() descriptions {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"service"}, labels...), nil)
	}
	return descriptions{
		up:      desc("kernosis_service_up", "Whether a service of the node counts as healthy; absent while that is unknown."),
		probes:  desc("kernosis_service_probes_total", "Probes of a service of the node, by result; unknown: the probe could not be run.", "result"),
		seconds: desc("kernosis_service_probe_seconds", "How long the latest probe of a service took."),
	}
}

// Describe implements prometheus.Collector.
func (r *Runner) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.desc.up, r.desc.probes, r.desc.seconds} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *Runner) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.order {
		s := r.all[name]
		for _, result := range []string{"successful", "failed", "unknown"} {
			ch <- prometheus.MustNewConstMetric(r.desc.probes, prometheus.CounterValue, float64(s.counts[result]), name, result)
		}
		if s.took > 0 {
			ch <- prometheus.MustNewConstMetric(r.desc.seconds, prometheus.GaugeValue, s.took.Seconds(), name)
		}
		if !s.known || !s.up {
			continue
		}
		up := 0.0
		if result, ok := r.manager.Results(probe.Readiness).Get(containerID(name)); ok && result == probe.Success {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(r.desc.up, prometheus.GaugeValue, up, name)
	}
}
