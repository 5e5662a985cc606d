package events

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Outcomes of requests besides those of package conditions. Conflict also means that the Event
// already existed, perhaps with an older count.
const (
	Created       conditions.Outcome = "created"
	Patched       conditions.Outcome = "patched"
	Recreated     conditions.Outcome = "recreated"      // 404 of a patch: the Event has expired and is created again
	NamespaceGone conditions.Outcome = "namespace_gone" // or terminating
)

// Outcomes returns all outcomes, for a table of counters.
func Outcomes() []conditions.Outcome {
	failed := slices.DeleteFunc(conditions.Outcomes()[1:], func(o conditions.Outcome) bool { return o == conditions.NodeMissing })
	return append([]conditions.Outcome{Created, Patched, Recreated, NamespaceGone}, failed...)
}

// Stats are the sink's counters since its state was created. They continue across restarts.
type Stats struct {
	Rules map[string]RuleStats // by rule name, or "condition/" and a condition type; at most 1001
	// LostEntries is the number of journal entries that could not be read, so that their content
	// is unknown.
	LostEntries uint64
	Series      int // current number of series
	Waiting     int // series with something the API server doesn't have yet

	// Of this process.
	Requests  map[conditions.Outcome]uint64
	LastAcked time.Time // of the last accepted request; zero: none
}

// RuleStats has the counters and the budget of a rule or a condition type. Once everything is sent,
// Happened equals the counts of its Events on the Node plus Dropped, and OnPods equals the counts of
// its Events on pods plus Unreported.
type RuleStats struct {
	Happened   uint64            `json:"happened"`          // occurrences to be reported on the Node
	OnPods     uint64            `json:"onPods,omitempty"`  // occurrences to be reported on a pod
	Unreported map[string]uint64 `json:"untold,omitempty"`  // of OnPods, those not reported there, by Astray reason
	Dropped    map[string]uint64 `json:"dropped,omitempty"` // by Astray reason
	Free       time.Time         `json:"free,omitzero"`     // when the whole budget will be available again
}

// Stats returns a copy of the counters.
func (k *Sink) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.stats
	st.Requests = maps.Clone(st.Requests)
	st.Rules = k.table.counters()
	st.LostEntries, st.Series = k.table.lost, len(k.table.list)
	for _, s := range k.table.list {
		if s.dirty() {
			st.Waiting++
		}
	}
	return st
}

// Describe implements prometheus.Collector.
func (k *Sink) Describe(ch chan<- *prometheus.Desc) {
	happened, dropped, unreported := ruleDescs() // there may be no rules yet
	ch <- happened
	ch <- dropped
	ch <- unreported
	prometheus.DescribeByCollect(k, ch)
}

func ruleDescs() (happened, dropped, unreported *prometheus.Desc) {
	return prometheus.NewDesc("kernosis_events_occurred_total", "Occurrences that belong in Events on the node, by rule: those counted in Events, and dropped ones.", []string{"rule"}, nil),
		prometheus.NewDesc("kernosis_events_dropped_total", "Occurrences that are not counted in any Event, by rule and reason.", []string{"rule", "reason"}, nil),
		prometheus.NewDesc("kernosis_events_not_on_pod_total", "Occurrences that are counted in the node's Event but not in one of the pod, by rule and reason.", []string{"rule", "reason"}, nil)
}

// Collect implements prometheus.Collector. Requests are counted elsewhere, together with those of
// other objects.
func (k *Sink) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(name, help string, v int) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, float64(v))
	}
	s := k.Stats()
	happened, dropped, unreported := ruleDescs()
	for rule, r := range s.Rules {
		counter(happened, r.Happened, rule)
		for reason, n := range r.Dropped {
			counter(dropped, n, rule, reason)
		}
		for reason, n := range r.Unreported {
			counter(unreported, n, rule, reason)
		}
	}
	counter(prometheus.NewDesc("kernosis_events_lost_entries_total", "Journal entries that were lost before their Events could be created.", nil, nil), s.LostEntries)
	gauge("kernosis_event_series", "Events whose count the agent is updating.", s.Series)
	gauge("kernosis_event_series_waiting", "Events whose latest count the API server does not have.", s.Waiting)
}
