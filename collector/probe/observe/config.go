package observe

import (
	"context"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/probe"
)

// Target is an address and port to which kubelet's connections are watched.
type Target struct {
	Name      string
	Address   netip.Addr
	Port      uint16
	NetNS     uint32        // kubelet's
	SlowAfter time.Duration // a complete answer that took longer than this came too late
}

// Count counts the connections to a Target that have succeeded since it was set.
type Count struct {
	Name      string
	Succeeded uint64
	Started   time.Time // of the latest connection
}

// Sockets watches connections. Set replaces all targets.
type Sockets interface {
	Set([]Target) error
	Counts() ([]Count, error)
}

// Results is how often a probe has failed and succeeded since kubelet began to make it.
type Results struct{ Failed, Succeeded uint64 }

// Kubelet returns kubelet's counts of all probes.
type Kubelet interface {
	Results(context.Context) (map[probe.Key]Results, error)
}

// Unhealthy is what kubelet reported of a failed probe in an Event.
type Unhealthy struct {
	PodUID, Container string
	Kind              probe.Kind
	At                time.Time // of the latest occurrence, in whole seconds
	Message           string
	Count             int
}

// Words returns kubelet's Events about the probes of a pod.
type Words interface {
	Unhealthy(ctx context.Context, namespace, podUID string) ([]Unhealthy, error)
}

// The parts whose state is reported.
const (
	PartSockets = "sockets" // kubelet's connections
	PartResults = "results" // kubelet's counts
	PartEvents  = "events"  // kubelet's Events
)

// Config configures an Observer.
type Config struct {
	Manager *probe.Manager
	Sockets Sockets
	Kubelet Kubelet // may be nil: only sockets are observed
	Words   Words   // may be nil: Events are not requested
	FS      hostfs.FS
	// Comms are the names that kubelet's process may have.
	Comms []string
	// State is called from Run's goroutine when a part starts or stops working.
	State func(part string, err error)
}

// Stats counts what became of observed outcomes.
type Stats struct {
	Taken      uint64 // outcomes from sockets that a worker took
	Counted    uint64 // outcomes from kubelet's counts alone
	Refused    uint64 // outcomes that no worker took: gated, on hold, deleting
	Others     uint64 // connections that kubelet did not open
	Repeated   uint64 // a second try of the same probe
	Uncounted  uint64 // failures that kubelet did not count
	Guessed    uint64 // of Taken, those that may belong to any of several probes
	Held       uint64 // of Taken, those that waited for kubelet's counts
	Unsure     uint64 // of Taken, failures that kubelet may not count: its counts are unavailable
	Overflowed uint64 // outcomes that found no room to wait: guessed, or left to kubelet's counts
	Late       uint64 // outcomes of pods that are gone
	Polls      uint64
	PollErrors uint64
	Asked      uint64 // requests for kubelet's Events
	Unasked    uint64 // requests not made because of the rate limit, or because one had just failed
	Targets    int
	Unwatched  int // network probes whose address can't be watched
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) {
	o.export(probe.Exporter{Descs: ch})
	o.vitals.skipped.Describe(ch)
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	o.export(probe.Exporter{Metrics: ch})
	o.vitals.skipped.Collect(ch)
}

func (o *Observer) export(to probe.Exporter) {
	s, metric := o.Stats(), to.Metric
	outcomes := metric(prometheus.CounterValue, "kernosis_probe_observations_total",
		"Connections to probed addresses, and failures that kubelet counts, by outcome.", "outcome")
	for outcome, n := range map[string]uint64{
		"taken": s.Taken, "counted-by-kubelet": s.Counted, "not-due": s.Refused, "not-kubelet": s.Others, "repeated": s.Repeated,
		"not-counted-by-kubelet": s.Uncounted, "pod-gone": s.Late, "guessed": s.Guessed, "held": s.Held, "unsure": s.Unsure, "no-room-to-hold": s.Overflowed,
	} {
		outcomes(float64(n), outcome)
	}
	polls := metric(prometheus.CounterValue, "kernosis_probe_kubelet_polls_total",
		"Requests to kubelet for its counts of probes, by outcome.", "outcome")
	polls(float64(s.Polls-min(s.Polls, s.PollErrors)), "answered")
	polls(float64(s.PollErrors), "failed")
	asks := metric(prometheus.CounterValue, "kernosis_probe_event_lists_total",
		"Requests to the API server for kubelet's Events on a pod, by outcome; skipped: not sent, to limit load or because one had just failed.", "outcome")
	asks(float64(s.Asked), "asked")
	asks(float64(s.Unasked), "skipped")
	places := metric(prometheus.GaugeValue, "kernosis_probe_places",
		"Addresses and ports whose connections are watched; unwatched: network probes that target a host name.", "state")
	places(float64(s.Targets), "watched")
	places(float64(s.Unwatched), "unwatched")
}
