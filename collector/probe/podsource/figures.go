package podsource

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/collector/probe"
)

// Sink takes all pods that the node had at a time; those that were in the set before and are
// no more are gone. Sets come one after another. The pods are the sink's.
type Sink func(pods []*probe.Pod, at time.Time)

// To hands whole sets of pods to a Manager.
func To(m *probe.Manager) func(pods []*probe.Pod) {
	return func(pods []*probe.Pod) {
		desired := make(map[string]struct{}, len(pods))
		for _, p := range pods {
			desired[p.UID] = struct{}{}
		}
		m.CleanupPods(desired)
		for _, p := range pods {
			m.AddPod(p)
		}
	}
}

// Figures are what a source has counted.
type Figures struct {
	Reads    uint64    // sets that were read
	Failures uint64    // times that none could be read
	Pods     int       // of the latest set
	Faulty   int       // pods of it of which something can't be used
	At       time.Time // of the latest set; zero: there was none yet
}

// figures counts, and logs what has changed. It is a prometheus.Collector.
type figures struct {
	log    *slog.Logger
	from   string // what is read, as the log names it
	descs  [5]*prometheus.Desc
	mu     sync.Mutex
	counts Figures
	failed error             // the latest failure; nil: there was none since
	faults map[string]string // by pod, as last logged
}

func newFigures(source, from string, log *slog.Logger) *figures {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, nil, prometheus.Labels{"source": source})
	}
	return &figures{log: log, from: from, descs: [5]*prometheus.Desc{
		desc("kernosis_pod_source_reads_total", "Times that the set of pods was read."),
		desc("kernosis_pod_source_failures_total", "Times that the set of pods could not be read."),
		desc("kernosis_pod_source_pods", "Pods of the latest set."),
		desc("kernosis_pod_source_pods_faulty", "Pods of the latest set of which something can't be used."),
		desc("kernosis_pod_source_last_read_timestamp_seconds", "When the latest set was read; 0: never."),
	}}
}

// read counts a set. Faults are by pod what can't be used; each is reported once.
func (f *figures) read(pods int, faults map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Reads++
	f.counts.Pods, f.counts.Faulty, f.counts.At = pods, len(faults), time.Now()
	if f.failed != nil {
		f.failed = nil
		f.log.Info("pods are read again", "from", f.from, "pods", pods)
	}
	for pod, fault := range faults {
		if f.faults[pod] != fault {
			f.log.Warn("part of a pod can't be used", "from", f.from, "error", fault)
		}
	}
	f.faults = faults
}

// failure counts a set that could not be read; one that goes on is reported once.
func (f *figures) failure(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Failures++
	if f.failed == nil || f.failed.Error() != err.Error() {
		f.log.Error("can't read pods; the last known ones stay", "from", f.from, "error", err)
	}
	f.failed = err
}

// Failure returns why the latest set could not be read; nil: it could.
func (f *figures) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Figures returns what was counted.
func (f *figures) Figures() Figures {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Describe implements prometheus.Collector.
func (f *figures) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range f.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (f *figures) Collect(ch chan<- prometheus.Metric) {
	c := f.Figures()
	at := 0.0
	if !c.At.IsZero() {
		at = float64(c.At.UnixMilli()) / 1000
	}
	for i, m := range []struct {
		kind  prometheus.ValueType
		value float64
	}{
		{prometheus.CounterValue, float64(c.Reads)},
		{prometheus.CounterValue, float64(c.Failures)},
		{prometheus.GaugeValue, float64(c.Pods)},
		{prometheus.GaugeValue, float64(c.Faulty)},
		{prometheus.GaugeValue, at},
	} {
		ch <- prometheus.MustNewConstMetric(f.descs[i], m.kind, m.value)
	}
}
