package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/logs/file"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/reporter/metrics"
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

	place string         // what a mistake in it is told with
	lines map[string]int // of its keys
	file  string
}

// kmsgLookback is how far back the kernel's log is read at the first start: what
// went wrong while the node booted is seen.
const kmsgLookback = 5 * time.Minute

// placeLogs notes where in the file the logs stand, for what is told of them.
func placeLogs(logs []logConfig, path string, raw []byte) error {
	var doc struct {
		Logs []yaml.Node `yaml:"logs"`
	}
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	for i := range logs {
		l := &logs[i]
		l.file, l.place, l.lines = path, fmt.Sprintf("logs[%d]", i), map[string]int{}
		if i < len(doc.Logs) {
			l.lines[""] = doc.Logs[i].Line
			noteLines(&doc.Logs[i], "", l.lines)
		}
	}
	return nil
}

func noteLines(n *yaml.Node, under string, lines map[string]int) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		lines[under+n.Content[i].Value] = n.Content[i].Line
		noteLines(n.Content[i+1], n.Content[i].Value+".", lines)
	}
}

// errorf tells a mistake with its place.
func (l *logConfig) errorf(field, format string, args ...any) error {
	line, ok := l.lines[field]
	if !ok {
		line = l.lines[""]
	}
	return fmt.Errorf("%s:%d: %s.%s: %w", l.file, line, l.place, field, fmt.Errorf(format, args...))
}

// source returns what it configures, names and lookback filled in.
func (l *logConfig) source() logsource.Config {
	c := logsource.Config{
		Name: l.Name, Plugin: l.Plugin, Path: l.Path, Delay: l.Delay, Identifiers: l.Identifiers, Skip: l.Skip, Kernel: l.Kernel,
		Format: file.Format{Timestamp: l.Format.Timestamp, TimestampFormat: l.Format.TimestampFormat, Message: l.Format.Message},
	}
	switch {
	case l.Lookback != nil:
		c.Lookback = *l.Lookback
	case c.Plugin == logsource.KMsg:
		c.Lookback = kmsgLookback
	}
	if c.Name == "" {
		c.Name = defaultLogName(c.Plugin, c.Path)
	}
	return c
}

func defaultLogName(plugin, path string) string {
	if plugin == logsource.File && path != "" {
		return filepath.Base(path)
	}
	return plugin
}

// logs returns the logs to read: those of the file and of --log, or else the
// kernel's. The error joins every mistake.
func (c *config) logs() ([]logsource.Config, error) {
	var out []logsource.Config
	var errs []error
	seen := map[string]string{}
	add := func(s logsource.Config, place string, errorf func(field, format string, args ...any) error) {
		for _, err := range joined(s.Check()) {
			field := "name"
			if e, ok := errors.AsType[*logsource.Error](err); ok {
				field, err = e.Field, e.Err
			}
			errs = append(errs, errorf(field, "%w", err))
		}
		if first, ok := seen[s.Name]; ok {
			errs = append(errs, errorf("name", "%q is that of %s already", s.Name, first))
		}
		seen[s.Name] = place
		out = append(out, s)
	}
	for i := range c.Logs {
		l := &c.Logs[i]
		add(l.source(), fmt.Sprintf("%s:%d", l.file, l.lines[""]), l.errorf)
	}
	none := false
	for _, text := range c.Log {
		if text == "none" {
			none = true
			continue
		}
		add(parseLog(text), "log "+text, func(field, format string, args ...any) error {
			return fmt.Errorf("log %q: %s: %w", text, field, fmt.Errorf(format, args...))
		})
	}
	if len(out) == 0 && !none {
		out = []logsource.Config{parseLog(logsource.KMsg)}
	}
	if len(out) > logsource.MaxLogs {
		errs = append(errs, fmt.Errorf("logs: %d, at most %d are read", len(out), logsource.MaxLogs))
	}
	return out, errors.Join(errs...)
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

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // errors.Join has no type to ask for
		return list.Unwrap()
	}
	return []error{err}
}

// openLogs returns the sources of the configured logs; their positions are kept in
// the state directory.
func openLogs(cfg config, monitors *npd.Set, rules *detector.RuleSet, log *slog.Logger) (*logsource.Sources, error) {
	configs, err := cfg.logs()
	if err != nil {
		return nil, err
	}
	configs = npdLogs(configs, monitors, cfg.HostRoot)
	dir := filepath.Join(cfg.StateDir, "logs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("positions in logs: %w", err)
	}
	return logsource.New(configs, rules.PatternSet(), logsource.Options{StateDir: dir, HostRoot: cfg.HostRoot, Log: log})
}

// logStats is what the sources have counted, as metrics want it.
func logStats(s *logsource.Sources) func() []metrics.LogStats {
	return func() []metrics.LogStats {
		var out []metrics.LogStats
		for _, l := range s.Stats() {
			m := metrics.LogStats{
				Log: l.Name, Lines: l.Lines, Bytes: l.Bytes, Matched: l.Matched, Skipped: l.Skipped, Cut: l.Cut, SaveErrors: l.SaveErrors,
			}
			for reason, lost := range l.Lost {
				m.Lost = append(m.Lost, metrics.LogLoss{Reason: string(reason), Times: lost.Times, Lines: lost.Lines})
			}
			out = append(out, m)
		}
		return out
	}
}
