package kube

import "github.com/prometheus/client_golang/prometheus"

// descs are the metrics of requests for Diagnoses.
type descs struct{ requests, watches *prometheus.Desc }

func newDescs() descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return descs{
		requests: desc("kernosis_diagnosis_api_requests_total", "API requests for Diagnoses and the objects they use, by verb, resource and outcome.", "verb", "resource", "outcome"),
		watches:  desc("kernosis_diagnosis_api_watches_total", "Watches opened at the API server, by resource. Each but the first replaces one that ended.", "resource"),
	}
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, d := range []*prometheus.Desc{d.requests, d.watches} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	d, st := newDescs(), s.Stats()
	for q, n := range st.Requests {
		counter(d.requests, n, q.Verb, q.Resource, string(q.Outcome))
	}
	for resource, n := range st.Watches {
		counter(d.watches, n, resource)
	}
}
