package liveness

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Reasons why a write has to wait.
const (
	waitSlowed = "zone_slowed"
	waitHalted = "halted"
	waitAsked  = "api_asked" // by a 429
)

type counts struct {
	writes  *prometheus.CounterVec // by outcome
	changes *prometheus.CounterVec // by reason
	waits   *prometheus.CounterVec // by reason
}

const removed = "Removed"

func newCounts() *counts {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	c := &counts{
		writes:  counter("kernosis_controller_writes_total", "Patches of Nodes, by outcome.", "outcome"),
		changes: counter("kernosis_controller_conditions_total", "Conditions written for silent agents, by reason; Removed: removed again.", "reason"),
		waits:   counter("kernosis_controller_write_waits_total", "Times that a write had to wait, by reason.", "reason"),
	}
	for _, o := range conditions.Outcomes() {
		c.writes.WithLabelValues(string(o))
	}
	for _, why := range []string{waitSlowed, waitHalted, waitAsked} {
		c.waits.WithLabelValues(why)
	}
	return c
}

// wrote counts one patch and its changes.
func (c *counts) wrote(outcome conditions.Outcome, changes []change) {
	c.writes.WithLabelValues(string(outcome)).Inc()
	if outcome != conditions.Written {
		return
	}
	for _, change := range changes {
		reason := change.Reason
		if change.Patch != "" {
			reason = removed
		}
		c.changes.WithLabelValues(reason).Inc()
	}
}

// collector exports the current states of the agents.
type collector struct {
	*counts
	tracker *tracker

	agents, zones, slowed, patience, halted *prometheus.Desc
}

func newCollector(c *counts, t *tracker) *collector {
	return &collector{
		counts: c, tracker: t,
		agents:   prometheus.NewDesc("kernosis_controller_nodes", "Nodes, by the presumed state of their agents.", []string{"state"}, nil),
		zones:    prometheus.NewDesc("kernosis_controller_zone_agents", "Agents that have a Lease; quiet: whether they miss renewals.", []string{"zone", "quiet"}, nil),
		slowed:   prometheus.NewDesc("kernosis_controller_zone_slowed", "1 while most agents of the zone are quiet, so that writes are slowed.", []string{"zone"}, nil),
		patience: prometheus.NewDesc("kernosis_controller_zone_patience", "Periods without a renewal after which an agent of the zone is silent: more than 1 while many miss renewals together.", []string{"zone"}, nil),
		halted:   prometheus.NewDesc("kernosis_controller_halted", "1 while all agents of all zones are quiet, so that nothing is written.", nil, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, v := range []prometheus.Collector{c.writes, c.changes, c.waits} {
		v.Describe(out)
	}
	for _, d := range []*prometheus.Desc{c.agents, c.zones, c.slowed, c.patience, c.halted} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.writes.Collect(out)
	c.changes.Collect(out)
	c.waits.Collect(out)
	v := c.tracker.all(time.Now())
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, s := range []state{stateNone, stateStarting, stateReporting, stateDraining, stateLate, stateSilent, stateNever} {
		gauge(c.agents, float64(v.states[s]), string(s))
	}
	for name, z := range v.zones {
		gauge(c.zones, float64(z.agents-z.quiet), name, "false")
		gauge(c.zones, float64(z.quiet), name, "true")
		gauge(c.slowed, truth(z.slowed()), name)
		gauge(c.patience, float64(z.patience), name)
	}
	gauge(c.halted, truth(v.halted))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
