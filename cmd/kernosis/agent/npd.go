package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/collector/plugin"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/collector/systemstats"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// npdLogs returns the configured logs and those that node-problem-detector's files name. If both
// have a log of the same name, it is read once, with the longer lookback and the shorter delay.
func npdLogs(configured []logsource.Config, set *npd.Set, hostRoot string) []logsource.Config {
	out := slices.Clone(configured)
	for i := range set.Logs {
		s := &set.Logs[i]
		c := logsource.Config{
			Name: s.Name, Plugin: s.Plugin, Path: s.Path, Lookback: s.Lookback, Delay: s.Delay, Skip: s.Skip,
			Format: file.Format{Timestamp: s.Timestamp, TimestampFormat: s.TimestampFormat, Message: s.Message},
		}
		if s.Plugin == "filelog" {
			c.Plugin = logsource.File
		}
		if c.Plugin == logsource.Journald && c.Path == journald.Folder && !journald.HasFiles(hostfs.New(hostRoot), c.Path) {
			c.Path = "" // journald keeps its journal in memory now, but may move it to disk later
		}
		if s.Identifier != "" {
			c.Identifiers = []string{s.Identifier}
		}
		if j := slices.IndexFunc(out, func(o logsource.Config) bool { return o.Name == c.Name }); j >= 0 {
			c.Lookback, c.Delay = max(c.Lookback, out[j].Lookback), min(c.Delay, out[j].Delay)
			out[j] = c
			continue
		}
		out = append(out, c)
	}
	return out
}

func (p *parts) openChecks() error {
	if len(p.monitors.Checks) == 0 {
		return nil
	}
	counted := metrics.NewChecks(p.metrics.Own)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("checks: %w", err)
	}
	group, err := process.OwnCgroup()
	if err != nil {
		p.log.Info("checks run without their own control groups", "reason", err)
	}
	handle := func(r plugin.Result) {
		counted.Result(r.Check, string(r.Status), r.Duration, r.Truncated)
		p.agent.observe(resultEvent(r))
	}
	var errs []error
	for i, monitor := range p.monitors.Checks {
		c := plugin.Config{
			Name:           fmt.Sprintf("%s-%d", cmp.Or(filepath.Base(monitor.Source), "checks"), i),
			InvokeInterval: monitor.InvokeInterval, Timeout: monitor.Timeout, MaxOutputLength: monitor.MaxOutputLength,
			Concurrency: monitor.Concurrency, Cgroup: group,
			Env: []string{HostRootEnv + "=" + p.cfg.HostRoot},
		}
		for _, r := range monitor.Rules {
			if slices.ContainsFunc(c.Checks, func(o plugin.Check) bool { return o.Name == r.Check }) {
				continue // several rules may use one program
			}
			check := plugin.Check{Name: r.Check, Path: r.Path, Args: r.Args, Timeout: r.Timeout, InvokeInterval: r.InvokeInterval}
			if r.Builtin != "" {
				check.Path, check.Args = self, append([]string{r.Builtin}, r.Args...)
			}
			c.Checks = append(c.Checks, check)
			counted.Known(check.Name, string(plugin.OK), string(plugin.Problem), string(plugin.Unknown))
		}
		runner, err := plugin.New(c, p.log, handle)
		errs = append(errs, err)
		p.checks = append(p.checks, runner)
	}
	return errors.Join(errs...)
}

// resultEvent returns the event of a check's result, as of now.
func resultEvent(r plugin.Result) *event.Event {
	d := &event.CheckData{Check: r.Check, Status: string(r.Status), Message: r.Message}
	if d.Message == "" && r.Err != nil {
		d.Message = r.Err.Error()
	}
	return hostfs.Stamped(event.Event{Kind: event.Check, Source: event.NamedStem(event.CheckStem, r.Check), Check: d})
}

// keepChecks reports checks that had a result before a restart as up, unless their next run is
// overdue. Otherwise their conditions would be Unknown until the first runs.
func (p *parts) keepChecks() {
	for _, monitor := range p.monitors.Checks {
		for _, r := range monitor.Rules {
			stem := event.NamedStem(event.CheckStem, r.Check)
			if ago, ok := p.agent.earlier(stem); ok && ago < r.InvokeInterval {
				p.agent.observe(hostfs.Stamped(event.Event{Kind: event.Source, Source: stem, SourceUp: &event.SourceData{Stem: stem, Up: true}}))
			}
		}
	}
}

// reportChecks emits the latest result of each check again: some run once a day.
func (p *parts) reportChecks(emit collector.Emit) {
	for _, r := range p.checks {
		r.ReportLasting(func(res plugin.Result) { emit(resultEvent(res)) })
	}
}

func (p *parts) openStats() error {
	reported := map[string]bool{} // display names
	for _, monitor := range p.monitors.Stats {
		files := p.cfg.npdFiles
		name := files[slices.IndexFunc(files, func(f *npd.File) bool { return f.Stats == monitor })].Name
		chosen := map[string]string{}
		for _, component := range monitor.Metrics {
			maps.Copy(chosen, component)
		}
		// A metric that two files name is reported once, as the first file configures it.
		maps.DeleteFunc(chosen, func(_, display string) bool { return reported[display] })
		for _, display := range chosen {
			reported[display] = true
		}
		modules := monitor.KnownModulesConfigPath
		if !filepath.IsAbs(modules) {
			modules = filepath.Join(filepath.Dir(name), modules)
		}
		if _, err := os.Stat(modules); err != nil {
			p.log.Info("list of known kernel modules not found", "path", modules)
			modules = ""
		}
		c, err := systemstats.New(systemstats.Config{
			Name:    name,
			Metrics: chosen, InvokeInterval: monitor.InvokeInterval, ProcPath: monitor.ProcPath,
			IncludeRootBlk: monitor.DiskIncludeRoot, IncludeAllAttachedBlk: monitor.DiskIncludeAttached,
			ExcludeInterfaceRegexp: monitor.NetExcludeInterfaces, KnownModulesConfigPath: modules,
		}, p.log)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		// Administrators choose these names, so one may clash with a metric of the agent.
		if err := p.metrics.Registry.Register(c); err != nil {
			return fmt.Errorf("%s: system stats: %w", name, err)
		}
		p.stats = append(p.stats, c)
	}
	return nil
}

// HostRootEnv is the environment variable that passes --host-root to check programs. A flag would
// not reach them: the image has links to kernosis at the paths of node-problem-detector's programs.
const HostRootEnv = "KERNOSIS_HOST_ROOT"
