package systemstats

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultInvokeInterval is node-problem-detector's default.
const DefaultInvokeInterval = time.Minute

// Config defines what to report. A zero value of a setting means its default.
type Config struct {
	// Name distinguishes the Collector's own metrics, which count errors and omissions, from those
	// of other Collectors, by the label monitor; empty if there is no other.
	Name string
	// Metrics are the metrics to report (metricsConfigs of all components), from identifier to displayName,
	// unless that is empty. Characters that a Prometheus name can't have become "_".
	Metrics map[string]string
	// InvokeInterval is how often the statistics are read.
	InvokeInterval time.Duration
	// ProcPath and SysPath are where proc and sysfs are mounted; "": /proc, /sys.
	ProcPath, SysPath string
	// Root is where the node's file systems are mounted; "": process 1's root if accessible, else "/".
	Root string

	// IncludeRootBlk reports all whole disks, IncludeAllAttachedBlk all devices that are mounted.
	// Without either, all block devices are reported.
	IncludeRootBlk, IncludeAllAttachedBlk bool
	// ExcludeInterfaceRegexp excludes network interfaces; "": none.
	ExcludeInterfaceRegexp string
	// KnownModulesConfigPath is a JSON file of out-of-tree modules that are not unknown; "": none.
	KnownModulesConfigPath string
}

// settings is a validated Config.
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

// check returns the settings, or all mistakes in them.
func (c Config) check() (*settings, error) {
	s := &settings{Config: c, chosen: map[string]*chosen{}}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.InvokeInterval < 0 {
		wrong("invokeInterval %v: want more than 0", s.InvokeInterval)
	}
	s.InvokeInterval = cmp.Or(s.InvokeInterval, DefaultInvokeInterval)
	s.ProcPath, s.SysPath = cmp.Or(s.ProcPath, "/proc"), cmp.Or(s.SysPath, "/sys")
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
			wrong("metricsConfigs[%q].displayName %q: the name %s is already used by %q", m.id, c.Metrics[m.id], name, other)
		}
		names[name] = m.id
		s.chosen[m.id] = &chosen{metric: m, desc: prometheus.NewDesc(name, m.help, m.labels, nil)}
	}
	for id := range c.Metrics {
		if !known[id] {
			wrong("metricsConfigs[%q]: no such metric", id)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("system stats: %w", err)
	}
	return s, nil
}

// proc and sys return the path of a file.
func (s *settings) proc(path string) string { return filepath.Join(s.ProcPath, path) }
func (s *settings) sys(path string) string  { return filepath.Join(s.SysPath, path) }
