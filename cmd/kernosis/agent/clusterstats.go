package agent

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/detector/problem"
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
func clusterDescs() (writes, acked *prometheus.Desc) {
	return prometheus.NewDesc("kernosis_api_writes_total",
			"Requests that write to the API server, by object (condition, event, lease, diagnosis) and outcome.", []string{"object", "outcome"}, nil),
		prometheus.NewDesc("kernosis_api_last_acknowledged_timestamp_seconds",
			"When the API server last accepted a write, by object.", []string{"object"}, nil)
}

// Describe implements prometheus.Collector.
func (r *clusterReporter) Describe(ch chan<- *prometheus.Desc) {
	writes, acked := clusterDescs()
	ch <- writes
	ch <- acked
}

// Collect implements prometheus.Collector.
func (r *clusterReporter) Collect(ch chan<- prometheus.Metric) {
	writes, lastAcked := clusterDescs()
	wrote := func(object, outcome string, n uint64) {
		ch <- prometheus.MustNewConstMetric(writes, prometheus.CounterValue, float64(n), object, outcome)
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
			ch <- prometheus.MustNewConstMetric(lastAcked, prometheus.GaugeValue, float64(at.UnixMilli())/1000, object)
		}
	}
}

// collectDiagnoses adds up the writes of Diagnoses, and returns when the last one was acknowledged.
func (r *clusterReporter) collectDiagnoses(wrote func(object, outcome string, n uint64)) time.Time {
	s := r.diagnoses.Stats()
	writes := map[conditions.Outcome]uint64{}
	for q, n := range s.Requests {
		if q.Writes() {
			writes[q.Outcome] += n
		}
	}
	for _, o := range kube.Outcomes() {
		wrote(objectDiagnosis, string(o), writes[o])
	}
	return s.LastAcked
}

// unwritten has the changes of one condition that the API server does not have yet, so that the
// latency of each write counts from the first change that it has.
type unwritten struct {
	has  problem.Condition // what the API server has acknowledged last
	list []change          // oldest first, at most maxUnwritten
}

type change struct {
	to    problem.Condition
	fault time.Time // kernel's time of the event behind it; zero: it was not a kernel event
}

// maxUnwritten bounds the changes of one condition, each of up to 1 KiB. Only the latest of further
// ones is kept.
const maxUnwritten = 16

func (u *unwritten) add(c problem.Condition, fault time.Time) {
	c.LastTransition = time.Time{}
	switch n := len(u.list); {
	case c == u.has:
		u.list = u.list[:0] // there is nothing to write any more
	case n == maxUnwritten && u.list[n-1].to.Status == c.Status:
		u.list[n-1].to = c
	case n == maxUnwritten:
		u.list[n-1] = change{c, fault}
	default:
		u.list = append(u.list, change{c, fault})
	}
}

// ack records that the API server has a condition. It returns the time of the fault that gave the
// condition its status; zero if that was returned before, or if no fault did.
func (u *unwritten) ack(c problem.Condition) (fault time.Time) {
	c.LastTransition = time.Time{}
	u.has = c
	for i, last := range slices.Backward(u.list) {
		if last.to != c {
			continue
		}
		for _, earlier := range slices.Backward(u.list[:i+1]) {
			if earlier.to.Status != c.Status {
				break
			}
			if !earlier.fault.IsZero() {
				fault = earlier.fault
			}
		}
		u.list = slices.Delete(u.list, 0, i+1)
		break
	}
	return fault
}
