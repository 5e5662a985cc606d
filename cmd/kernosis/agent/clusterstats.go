package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// newLatency returns the histogram of the time from a fault to the API server's acknowledgement.
func newLatency() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kernosis_report_latency_seconds", Help: "Time from the kernel's timestamp of a fault to the API server's acknowledgement, by object (condition, event).",
		// 0.5 ms … 5 min: more than that is an outage.
		Buckets: prometheus.ExponentialBucketsRange(500e-6, 300, 20),
	}, []string{"object"})
}

// clusterDescs describes the metrics shared by all parts that write to the API server.
type clusterDescs struct{ writes, acked *prometheus.Desc }

func newClusterDescs() clusterDescs {
	return clusterDescs{
		writes: prometheus.NewDesc("kernosis_api_writes_total", "Requests that write to the API server, by object (condition, event, lease, diagnosis) and outcome.", []string{"object", "outcome"}, nil),
		acked:  prometheus.NewDesc("kernosis_api_last_acknowledged_timestamp_seconds", "When the API server last accepted a write, by object.", []string{"object"}, nil),
	}
}

// collectors returns the metrics of all parts that report to the API server.
func (r *clusterReporter) collectors() []prometheus.Collector {
	all := []prometheus.Collector{r, r.latency}
	if r.conditions != nil {
		all = append(all, r.conditions)
	}
	if r.events != nil {
		all = append(all, r.events)
	}
	if r.diagnoses != nil {
		all = append(all, r.diagnoses)
	}
	return all
}

// Describe implements prometheus.Collector.
func (r *clusterReporter) Describe(ch chan<- *prometheus.Desc) {
	d := newClusterDescs()
	ch <- d.writes
	ch <- d.acked
}

// Collect implements prometheus.Collector.
func (r *clusterReporter) Collect(ch chan<- prometheus.Metric) {
	d := newClusterDescs()
	wrote := func(object, outcome string, n uint64) {
		ch <- prometheus.MustNewConstMetric(d.writes, prometheus.CounterValue, float64(n), object, outcome)
	}
	acked := map[string]time.Time{}
	if r.conditions != nil {
		s := r.conditions.Stats()
		for _, o := range conditions.Outcomes() {
			wrote(objectCondition, string(o), s.Writes[o])
		}
		acked[objectCondition] = s.LastAcked
	}
	if r.lease != nil {
		s := r.lease.Stats()
		for _, o := range lease.Outcomes() {
			wrote(objectLease, string(o), s.Renewals[o])
		}
		acked[objectLease] = s.LastRenewed
	}
	if r.events != nil {
		s := r.events.Stats()
		for _, o := range events.Outcomes() {
			wrote(objectEvent, string(o), s.Requests[o])
		}
		acked[objectEvent] = s.LastAcked
	}
	if r.diagnoses != nil {
		acked[objectDiagnosis] = r.collectDiagnoses(wrote)
	}
	for object, at := range acked {
		if !at.IsZero() {
			ch <- prometheus.MustNewConstMetric(d.acked, prometheus.GaugeValue, float64(at.UnixMilli())/1000, object)
		}
	}
}

// collectDiagnoses adds up the writes of Diagnoses, and returns when the last one was acknowledged.
func (r *clusterReporter) collectDiagnoses(wrote func(object, outcome string, n uint64)) time.Time {
	s := r.diagnoses.Stats()
	writes := map[conditions.Outcome]uint64{}
	for _, o := range kube.Outcomes() {
		writes[o] = 0
	}
	for q, n := range s.Requests {
		if q.Writes() {
			writes[q.Outcome] += n
		}
	}
	for o, n := range writes {
		wrote(objectDiagnosis, string(o), n)
	}
	return s.LastAcked
}
