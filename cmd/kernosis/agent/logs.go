package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logsource"
)

// logConfig is one log of the configuration file. See docs/logs.md.
type logConfig struct {
	Name        string         `yaml:"name"`
	Plugin      string         `yaml:"plugin"`
	Path        string         `yaml:"path"`
	Lookback    *time.Duration `yaml:"lookback"`
	Delay       time.Duration  `yaml:"delay"`
	Identifiers []string       `yaml:"identifiers"`
	Format      struct {
		Timestamp       string `yaml:"timestamp"`
		TimestampFormat string `yaml:"timestampFormat"`
		Message         string `yaml:"message"`
	} `yaml:"format"`
	Kernel bool     `yaml:"kernel"`
	Skip   []string `yaml:"skip"`
}

// kmsgLookback is how far back the kernel's log is read at the first start, so that problems during
// boot are detected.
const kmsgLookback = 5 * time.Minute

// crashLookback: the first start reports panics of at most this time before the boot. The machine may
// have been off for a night.
const crashLookback = 24 * time.Hour

// source returns the log source that l configures, with default name and lookback filled in.
func (l *logConfig) source() logsource.Config {
	c := logsource.Config{
		Name: l.Name, Plugin: l.Plugin, Path: l.Path, Delay: l.Delay, Identifiers: l.Identifiers, Skip: l.Skip,
		Format: file.Format{Timestamp: l.Format.Timestamp, TimestampFormat: l.Format.TimestampFormat, Message: l.Format.Message, Kernel: l.Kernel},
	}
	switch {
	case l.Lookback != nil:
		c.Lookback = *l.Lookback
	case c.Plugin == logsource.KMsg:
		c.Lookback = kmsgLookback
	case c.Plugin == logsource.Crash:
		c.Lookback = crashLookback
	}
	switch {
	case c.Name != "":
	case c.Plugin == logsource.File && c.Path != "":
		c.Name = filepath.Base(c.Path)
	default:
		c.Name = c.Plugin
	}
	return c
}

// logs returns the logs to read: those of the file and of --log, or by default the kernel's log and the
// records of its crashes. The error joins all errors found.
func (c *Config) logs() ([]logsource.Config, error) {
	var out []logsource.Config
	var errs []error
	seen := map[string]string{}
	add := func(s logsource.Config, place string, errorf func(field, format string, args ...any) error) {
		for _, e := range s.Check() {
			errs = append(errs, errorf(e.Field, "%s", e.Msg))
		}
		if first, ok := seen[s.Name]; ok {
			errs = append(errs, errorf("name", "%q is already used by %s", s.Name, first))
		}
		seen[s.Name] = place
		out = append(out, s)
	}
	for i := range c.Logs {
		at := fmt.Sprintf("logs[%d]", i)
		add(c.Logs[i].source(), c.origins.Of(at), func(field, format string, args ...any) error {
			return c.origins.Errorf(at+"."+field, format, args...)
		})
	}
	none := false
	for _, text := range c.Log {
		if text == "none" {
			none = true
			continue
		}
		source := parseLog(text)
		if plugins := logsource.Plugins(); !slices.Contains(plugins, source.Plugin) {
			hint := cmp.Or(document.Suggest(source.Plugin, plugins), ", want kmsg, journald, file:PATH or crash")
			if strings.HasPrefix(source.Plugin, "/") {
				hint = ", did you mean file:" + source.Plugin + "?"
			}
			errs = append(errs, c.origins.Errorf("log", "unknown source %q%s", text, hint))
			continue
		}
		add(source, "log "+text, func(field, format string, args ...any) error {
			return c.origins.Errorf("log", "%q: %s: %w", text, field, fmt.Errorf(format, args...))
		})
	}
	if len(out) == 0 && !none {
		out = []logsource.Config{parseLog(logsource.KMsg), parseLog(logsource.Crash)}
	}
	if len(out) > logsource.MaxLogs {
		errs = append(errs, c.origins.Errorf("logs", "%d, want at most %d", len(out), logsource.MaxLogs))
	}
	return out, errors.Join(errs...)
}

// withoutCrash returns a warning if logs are configured, but not the records of panics. While another log
// is missing, conditions are Unknown; panics have none.
func (c *Config) withoutCrash() (warnings []string) {
	all, _ := c.logs() // validate returns the errors
	if len(all) > 0 && !slices.ContainsFunc(all, func(l logsource.Config) bool { return l.Plugin == logsource.Crash }) {
		warnings = append(warnings, "kernel panics of earlier boots are not reported: the configured logs replace the default ones; add {plugin: crash} to logs, or --log crash")
	}
	return warnings
}

// parseLog reads [NAME=]PLUGIN[:PATH].
func parseLog(text string) logsource.Config {
	l := logConfig{}
	rest := text
	if name, what, ok := strings.Cut(text, "="); ok && !strings.Contains(name, "/") {
		l.Name, rest = name, what
	}
	l.Plugin, l.Path, _ = strings.Cut(rest, ":")
	return l.source()
}

// openLogs creates the log sources. Their positions are kept in the state directory.
func (p *parts) openLogs() error {
	configs, _ := p.cfg.logs() // checked by validate
	dir := filepath.Join(p.cfg.StateDir, "logs")
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return output.Failed(fmt.Errorf("folder for positions in logs: %w", err))
	}
	p.logs, err = logsource.New(npdLogs(configs, p.monitors, p.cfg.HostRoot), p.rules.PatternSet(),
		logsource.Options{StateDir: dir, HostRoot: p.cfg.HostRoot, Log: p.log})
	if err != nil {
		return output.Failed(err)
	}
	p.agent.patterns = p.logs.SetPatterns
	p.metrics.Own.MustRegister(p.logs)
	return nil
}
