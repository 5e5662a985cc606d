package npd

import (
	"maps"
	"slices"
	"time"
)

// StatsMonitor is a system-stats-monitor.
type StatsMonitor struct {
	InvokeInterval time.Duration // default 60s
	ProcPath       string        // default /proc
	// Metrics holds the display names of the metrics to report, by component
	// (cpu, disk, host, memory, osFeature, net) and ID, such as cpu/load_1m. An
	// ID without a display name is not reported.
	Metrics                map[string]map[string]string
	DiskIncludeRoot        bool
	DiskIncludeAttached    bool
	NetExcludeInterfaces   string // RE2; empty: none
	KnownModulesConfigPath string // default guestosconfig/known-modules.json
}

const (
	defaultStatsInterval = time.Minute
	defaultLsblkTimeout  = 5 * time.Second
	defaultKnownModules  = "guestosconfig/known-modules.json"
	// maxMetrics bounds the metrics of a component; NPD has 16 for net.
	maxMetrics = 200
)

// statsComponents returns the keys of each component besides metricsConfigs.
func statsComponents() map[string][]string {
	return map[string][]string{
		"cpu":       nil,
		"disk":      {"includeRootBlk", "includeAllAttachedBlk", "lsblkTimeout"},
		"host":      nil,
		"memory":    nil,
		"osFeature": {"knownModulesConfigPath"},
		"net":       {"excludeInterfaceRegexp"},
	}
}

func (d *document) systemStats(root *node) *StatsMonitor {
	components := statsComponents()
	names := slices.Sorted(maps.Keys(components))
	top := d.read(root, "", append([]string{"invokeInterval", "procPath"}, names...)...)
	m := &StatsMonitor{
		InvokeInterval:         top.duration("invokeInterval", defaultStatsInterval, minInterval),
		ProcPath:               top.text("procPath", "/proc"),
		Metrics:                make(map[string]map[string]string),
		KnownModulesConfigPath: defaultKnownModules,
	}
	for _, name := range names {
		n := top.values[name]
		if n == nil {
			continue
		}
		r := d.read(n, name, append(components[name], "metricsConfigs")...)
		if metrics := r.metrics(); len(metrics) > 0 {
			m.Metrics[name] = metrics
		}
		switch name {
		case "disk":
			m.DiskIncludeRoot = r.bool("includeRootBlk", false)
			m.DiskIncludeAttached = r.bool("includeAllAttachedBlk", false)
			// Kernosis doesn't run lsblk, but NPD refuses such a file.
			if d := r.duration("lsblkTimeout", defaultLsblkTimeout, time.Millisecond); d > m.InvokeInterval {
				r.errorf("lsblkTimeout", "%v is more than invokeInterval, %v", d, m.InvokeInterval)
			}
		case "osFeature":
			m.KnownModulesConfigPath = r.text("knownModulesConfigPath", defaultKnownModules)
		case "net":
			m.NetExcludeInterfaces = r.regexp("excludeInterfaceRegexp", false, "")
		}
	}
	if len(m.Metrics) == 0 {
		top.warnf("metricsConfigs", "no metric is named: nothing is measured")
	}
	return m
}

func (r *reader) metrics() map[string]string {
	n := r.get("metricsConfigs", object)
	if n == nil {
		return nil
	}
	if len(n.members) > maxMetrics {
		r.errorf("metricsConfigs", "has %d metrics, at most %d are allowed", len(n.members), maxMetrics)
		return nil
	}
	out := make(map[string]string)
	for _, m := range n.members {
		if m.value.kind == null {
			continue
		}
		c := r.d.read(m.value, r.field("metricsConfigs")+"."+shown(m.name), "displayName")
		if name := c.text("displayName", ""); name != "" {
			out[m.name] = name
		}
	}
	return out
}
