package pods

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kernosis/kernosis/collector/probe"
)

// Sink takes the complete set of the node's pods at a time. Pods of the previous set that are
// missing from it are gone. It is called with one set after another. It owns the pods.
type Sink func(pods []*probe.Pod, at time.Time)

// figures counts what a source has read, and logs changes. It is the source's Collector.
type figures struct {
	prometheus.Collector
	reads, failures  prometheus.Counter
	pods, faulty, at prometheus.Gauge // of the latest set

	log    *slog.Logger
	from   string // what is read, for the log
	mu     sync.Mutex
	failed error             // the latest failure; nil if a read has succeeded since
	faults map[string]string // by pod, as last logged
}

func newFigures(source, from string, log *slog.Logger) *figures {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	all := prometheus.NewRegistry()
	with := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"source": source}, all))
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &figures{
		Collector: all, log: log, from: from,
		reads:    counter("kernosis_pod_source_reads_total", "Times that the set of pods was read."),
		failures: counter("kernosis_pod_source_failures_total", "Times that the set of pods could not be read."),
		pods:     gauge("kernosis_pod_source_pods", "Pods of the latest set."),
		faulty:   gauge("kernosis_pod_source_pods_faulty", "Pods of the latest set that are partly unusable."),
		at:       gauge("kernosis_pod_source_last_read_timestamp_seconds", "When the latest set was read; 0: never."),
	}
}

// read counts a set. faults has what can't be used, by pod; each fault is logged once.
func (f *figures) read(pods int, faults map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads.Inc()
	f.pods.Set(float64(pods))
	f.faulty.Set(float64(len(faults)))
	f.at.SetToCurrentTime()
	if f.failed != nil {
		f.failed = nil
		f.log.Info("pods can be read again", "from", f.from, "pods", pods)
	}
	for pod, fault := range faults {
		if f.faults[pod] != fault {
			f.log.Warn("part of a pod can't be used", "from", f.from, "error", fault)
		}
	}
	f.faults = faults
}

// failure counts a set that could not be read; an error that persists is logged once.
func (f *figures) failure(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures.Inc()
	if f.failed == nil || f.failed.Error() != err.Error() {
		f.log.Error("can't read pods; keeping the last known ones", "from", f.from, "error", err)
	}
	f.failed = err
}

// Failure returns why the latest set could not be read, or nil if it could.
func (f *figures) Failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}
