package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ClusterStats is what the agent has counted of what it tells the API server. A nil
// part is one that is switched off.
type ClusterStats struct {
	Writes     []APIWrites
	Conditions *ConditionStats
	Events     *EventStats
	Diagnoses  *DiagnosisRequests
	LastAcked  map[string]time.Time // by object; zero: nothing was taken yet
}

// APIWrites counts the requests that write one kind of object.
type APIWrites struct {
	Object  string // condition, event, lease or diagnosis
	Outcome string
	Count   uint64
}

// ConditionStats is of the node's conditions.
type ConditionStats struct {
	Bytes, Flips, Contested, Removed, Refused, Trimmed uint64

	Pending bool // the API does not have what was set last
	Yielded int  // types that are left to others now
}

// EventStats is of Events.
type EventStats struct {
	Rules       map[string]EventRule
	LostEntries uint64
	Series      int
	Waiting     int
}

// EventRule is what became of what one rule told.
type EventRule struct {
	Happened uint64
	Dropped  map[string]uint64 // by reason
	Untold   map[string]uint64 // on its pod, though on the Node; by reason
}

// DiagnosisRequests is of the requests for Diagnoses and for what they are made of.
type DiagnosisRequests struct {
	Requests []APIRequests
	Watches  map[string]uint64 // that were opened, by resource
}

// APIRequests counts requests of a kind that have ended in one way.
type APIRequests struct {
	Verb, Resource, Outcome string
	Count                   uint64
}

// Cluster observes what the API server has acknowledged. It is safe for concurrent
// use.
type Cluster struct {
	latency *prometheus.HistogramVec
}

// Cluster registers the metrics of what is told to the API server; the counters are
// read at each scrape.
func (m *Metrics) Cluster(stats func() ClusterStats) *Cluster {
	c := &Cluster{latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kernosis_report_latency_seconds", Help: "Time from the kernel's stamp of a fault to the API server's acknowledgement, by object (condition, event).",
		// 0.5 ms … 5 min: beyond is an outage.
		Buckets: prometheus.ExponentialBucketsRange(500e-6, 300, 20),
	}, []string{"object"})}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.Own.MustRegister(c.latency, &clusterCollector{
		stats:     stats,
		writes:    desc("kernosis_api_writes_total", "Requests that write to the API server, by object (condition, event, lease, diagnosis) and outcome.", "object", "outcome"),
		requests:  desc("kernosis_diagnosis_api_requests_total", "Requests for Diagnoses and what they are made of, by verb, resource and outcome.", "verb", "resource", "outcome"),
		watches:   desc("kernosis_diagnosis_api_watches_total", "Watches that the API server has opened, by resource. Each but the first follows one that has ended.", "resource"),
		acked:     desc("kernosis_api_last_acknowledged_timestamp_seconds", "When the API server last took a write, by object.", "object"),
		bytes:     desc("kernosis_api_condition_bytes_total", "Bytes of the patches of conditions."),
		flips:     desc("kernosis_condition_flips_total", "Conditions of the agent that other clients wrote over or removed."),
		contested: desc("kernosis_condition_contested_total", "Times that a condition type was left to another client."),
		yielded:   desc("kernosis_conditions_yielded", "Condition types that are left to other clients now."),
		removed:   desc("kernosis_conditions_removed_total", "Conditions removed from the node because no rule has them any more."),
		refused:   desc("kernosis_conditions_refused_total", "Conditions that could not be the agent's."),
		trimmed:   desc("kernosis_condition_fields_changed_total", "Reasons and messages of conditions that were cut or escaped."),
		pending:   desc("kernosis_conditions_pending", "1 while the API server does not have the conditions as they are."),
		happened:  desc("kernosis_events_told_total", "Occurrences to be told as Events on the node, by rule. Their sum is that of the Events' counts and what was dropped.", "rule"),
		dropped:   desc("kernosis_events_dropped_total", "Occurrences that no Event counts, by rule and reason.", "rule", "reason"),
		untold:    desc("kernosis_events_not_on_pod_total", "Occurrences that the node's Event counts but none of the pod, by rule and reason.", "rule", "reason"),
		lost:      desc("kernosis_events_lost_entries_total", "Journal entries that were gone before their Events could be made."),
		series:    desc("kernosis_event_series", "Events that the agent is counting in."),
		waiting:   desc("kernosis_event_series_waiting", "Events of which the API server does not have the latest count."),
	})
	return c
}

// Acknowledged observes that the API server has an object, so long after the
// kernel's stamp of the fault.
func (c *Cluster) Acknowledged(object string, after time.Duration) {
	c.latency.WithLabelValues(object).Observe(after.Seconds())
}

// clusterCollector implements prometheus.Collector.
type clusterCollector struct {
	stats func() ClusterStats

	writes, acked, bytes, flips, contested, yielded, removed, refused, trimmed, pending *prometheus.Desc
	happened, dropped, untold, lost, series, waiting, requests, watches                 *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.writes, c.acked, c.bytes, c.flips, c.contested, c.yielded, c.removed, c.refused, c.trimmed, c.pending,
		c.happened, c.dropped, c.untold, c.lost, c.series, c.waiting, c.requests, c.watches,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.stats()
	for _, w := range s.Writes {
		counter(c.writes, w.Count, w.Object, w.Outcome)
	}
	for object, at := range s.LastAcked {
		if !at.IsZero() {
			gauge(c.acked, float64(at.UnixMilli())/1000, object)
		}
	}
	if k := s.Conditions; k != nil {
		counter(c.bytes, k.Bytes)
		counter(c.flips, k.Flips)
		counter(c.contested, k.Contested)
		gauge(c.yielded, float64(k.Yielded))
		counter(c.removed, k.Removed)
		counter(c.refused, k.Refused)
		counter(c.trimmed, k.Trimmed)
		gauge(c.pending, boolean(k.Pending))
	}
	if d := s.Diagnoses; d != nil {
		for _, r := range d.Requests {
			counter(c.requests, r.Count, r.Verb, r.Resource, r.Outcome)
		}
		for resource, n := range d.Watches {
			counter(c.watches, n, resource)
		}
	}
	if e := s.Events; e != nil {
		for _, rule := range slices.Sorted(maps.Keys(e.Rules)) {
			r := e.Rules[rule]
			counter(c.happened, r.Happened, rule)
			for reason, n := range r.Dropped {
				counter(c.dropped, n, rule, reason)
			}
			for reason, n := range r.Untold {
				counter(c.untold, n, rule, reason)
			}
		}
		counter(c.lost, e.LostEntries)
		gauge(c.series, float64(e.Series))
		gauge(c.waiting, float64(e.Waiting))
	}
}
