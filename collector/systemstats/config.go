package systemstats

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultInvokeInterval is that of node-problem-detector.
const DefaultInvokeInterval = time.Minute

// Config says what to report. A zero value of a setting is its default; without
// Metrics nothing is reported.
type Config struct {
	// Name distinguishes the Collector's own metrics, which count errors and omissions, from
	// another one's, by the label monitor; "": there is no other.
	Name string
	// Metrics names the metrics to be reported: metricsConfigs of all components, from
	// identifier to displayName. One with an empty name is not reported. Signs
	// that a Prometheus name can't have become "_".
	Metrics map[string]string
	// InvokeInterval is how often the figures are read.
	InvokeInterval time.Duration
	// ProcPath and SysPath are where proc and sysfs are mounted; "": /proc, /sys.
	ProcPath, SysPath string
	// Root is where the node's file systems are; "": the root of process 1 below
	// ProcPath where it may be seen, else "/".
	Root string

	// IncludeRootBlk reports all whole disks, IncludeAllAttachedBlk of all devices
	// that are mounted. Without either the counters of all block devices are reported.
	IncludeRootBlk, IncludeAllAttachedBlk bool
	// ExcludeInterfaceRegexp leaves out network interfaces; "": none.
	ExcludeInterfaceRegexp string
	// KnownModulesConfigPath is a JSON file with modules from outside the kernel's
	// tree that are not to be reported as unknown; "": there are none.
	KnownModulesConfigPath string
}

// settings is a Config that was checked.
type settings struct {
	Config
	exclude *regexp.Regexp
	chosen  map[string]*chosen // by id
}

// chosen is a metric that is reported.
type chosen struct {
	metric
	desc *prometheus.Desc
}

// check returns the settings, or all that is wrong with them.
func (c Config) check() (*settings, error) {
	s := &settings{Config: c, chosen: map[string]*chosen{}}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.InvokeInterval < 0 {
		wrong("invokeInterval %v: want more than 0", s.InvokeInterval)
	} else if s.InvokeInterval == 0 {
		s.InvokeInterval = DefaultInvokeInterval
	}
	if s.ProcPath == "" {
		s.ProcPath = "/proc"
	}
	if s.SysPath == "" {
		s.SysPath = "/sys"
	}
	if s.ExcludeInterfaceRegexp != "" {
		var err error
		if s.exclude, err = regexp.Compile(s.ExcludeInterfaceRegexp); err != nil {
			wrong("excludeInterfaceRegexp: %w", err)
		}
	}
	known, names := map[string]bool{}, map[string]string{}
	for _, m := range table() {
		known[m.id] = true
		name := metricName(c.Metrics[m.id])
		if name == "" {
			continue
		}
		if other, taken := names[name]; taken {
			wrong("metricsConfigs[%q].displayName %q: the name %s is that of %q", m.id, c.Metrics[m.id], name, other)
		}
		names[name] = m.id
		s.chosen[m.id] = &chosen{metric: m, desc: prometheus.NewDesc(name, m.help, m.labels, nil)}
	}
	for id := range c.Metrics {
		if !known[id] {
			wrong("metricsConfigs[%q]: there is no such metric", id)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("system stats: %w", err)
	}
	return s, nil
}

// proc and sys return where a file is.
func (s *settings) proc(path string) string { return filepath.Join(s.ProcPath, path) }
func (s *settings) sys(path string) string  { return filepath.Join(s.SysPath, path) }
