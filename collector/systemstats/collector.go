package systemstats

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"github.com/kernosis/kernosis/collector/bounded"
)

// maxSubjects bounds the devices, mounts and interfaces that are reported, each kind separately: a
// node has some hundred pods, each with an interface.
const maxSubjects = 1000

// Collector reads statistics of the node and exports the latest to Prometheus. Create one with
// New. Its methods are safe for concurrent use.
type Collector struct {
	set   *settings
	log   *slog.Logger
	fs    procfs.FS
	block blockdevice.FS

	modules map[string]bool // known ones

	sampling sync.Mutex
	queues   map[string]queue          // of each device, at the last sample
	late     map[string]*bounded.Calls // to file systems that have not answered, by mount point
	reported map[string]string         // the last error of each component

	errors  *prometheus.CounterVec
	leftOut *prometheus.GaugeVec

	mu     sync.Mutex
	latest []prometheus.Metric
}

// New returns a Collector that has read nothing yet, or why cfg is invalid. log may be nil.
func New(cfg Config, log *slog.Logger) (*Collector, error) {
	set, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var labels prometheus.Labels
	if set.Name != "" {
		labels = prometheus.Labels{"monitor": set.Name}
	}
	c := &Collector{
		set: set, log: log, queues: map[string]queue{}, late: map[string]*bounded.Calls{}, reported: map[string]string{},
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kernosis_system_stats_errors_total", Help: "Times that figures of a component of the node could not be read.", ConstLabels: labels,
		}, []string{"component"}),
		leftOut: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kernosis_system_stats_left_out", Help: "Devices, mounts and interfaces beyond the number that is reported.", ConstLabels: labels,
		}, []string{"component"}),
	}
	if c.fs, err = procfs.NewFS(set.ProcPath); err != nil {
		return nil, fmt.Errorf("system stats: procPath: %w", err)
	}
	if c.block, err = blockdevice.NewFS(set.ProcPath, set.SysPath); err != nil {
		return nil, fmt.Errorf("system stats: sysPath: %w", err)
	}
	if c.modules, err = knownModules(set.KnownModulesConfigPath, log); err != nil {
		return nil, fmt.Errorf("system stats: knownModulesConfigPath: %w", err)
	}
	return c, nil
}

// Run reads the statistics at once and at each interval until ctx ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.set.InvokeInterval)
	defer ticker.Stop()
	for {
		c.Sample()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Sample reads the statistics now. What can't be read is omitted, counted, and logged if that is new.
func (c *Collector) Sample() {
	c.sampling.Lock()
	defer c.sampling.Unlock()
	s := &sample{set: c.set}
	for _, part := range []struct {
		component string
		ids       []string // prefixes
		read      func(*sample) error
	}{
		{"cpu", []string{"cpu/load_", "cpu/runnable_"}, c.load},
		{"cpu", []string{"cpu/usage_time", "system/proc", "system/interrupts", "system/cpu_stat"}, c.cpu},
		{"memory", []string{"memory/"}, c.memory},
		{"host", []string{"host/"}, c.host},
		{"disk", []string{"disk/"}, c.disk},
		{"net", []string{"net/"}, c.net},
		{"osFeature", []string{"system/os_feature"}, c.osFeature},
	} {
		if !c.set.any(part.ids) {
			continue
		}
		err := part.read(s)
		if err != nil {
			c.errors.WithLabelValues(part.component).Inc()
		}
		c.logState(part.component+" "+part.ids[0], err)
	}
	c.mu.Lock()
	c.latest = s.metrics
	c.mu.Unlock()
}

// logState logs an error that differs from that of the last sample.
func (c *Collector) logState(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && c.reported[part] != text {
		c.log.Warn("system stats are incomplete", "part", part, "error", err)
	}
	c.reported[part] = text
}

// bounded returns how many of n subjects are reported.
func (c *Collector) bounded(component string, n int) int {
	c.leftOut.WithLabelValues(component).Set(float64(max(0, n-maxSubjects)))
	return min(n, maxSubjects)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.set.chosen {
		ch <- m.desc
	}
	c.errors.Describe(ch)
	c.leftOut.Describe(ch)
}

// Collect implements prometheus.Collector. It reads nothing.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	latest := c.latest
	c.mu.Unlock()
	for _, m := range latest {
		ch <- m
	}
	c.errors.Collect(ch)
	c.leftOut.Collect(ch)
}

// any reports whether any of the chosen metrics has an id with one of the prefixes.
func (s *settings) any(prefixes []string) bool {
	for id := range s.chosen {
		for _, p := range prefixes {
			if strings.HasPrefix(id, p) {
				return true
			}
		}
	}
	return false
}

// sample is the statistics read at one time.
type sample struct {
	set     *settings
	metrics []prometheus.Metric
}

// add adds a value, if its metric is chosen.
func (s *sample) add(id string, value float64, labels ...string) {
	m := s.set.chosen[id]
	if m == nil {
		return
	}
	kind := prometheus.GaugeValue
	if m.counter {
		kind = prometheus.CounterValue
	}
	metric, err := prometheus.NewConstMetric(m.desc, kind, value, labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(m.desc, err)
	}
	s.metrics = append(s.metrics, metric)
}

// count adds the value of a kernel counter.
func (s *sample) count(id string, value uint64, labels ...string) {
	s.add(id, float64(value), labels...)
}
