package npd

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/logpattern"
)

// LogMonitor is a system-log-monitor.
type LogMonitor struct {
	LogSource
	BufferSize int    // lines that a pattern may span; default 10
	Source     string // the monitor's name in Events
	KernelOnly bool   // Kernosis extension: only lines that the kernel itself wrote
	Conditions []Condition
	Rules      []LogRule
}

// LogSource defines which log a monitor reads, and how.
type LogSource struct {
	Name       string        // unique; set by [Convert]
	Plugin     string        // kmsg, journald, filelog
	Path       string        // device, journal's folder, file
	Lookback   time.Duration // maximum age of lines that are read at start
	Delay      time.Duration // after boot, before reading starts
	Identifier string        // journald: SYSLOG_IDENTIFIER
	// Filelog: expressions that find time and text in a line. The last group of each
	// is used, or the whole match.
	Timestamp       string
	Message         string
	TimestampFormat string
	Skip            []string // filelog: lines that contain one of these are ignored
}

// LogRule is a rule of a LogMonitor.
type LogRule struct {
	Rule
	Pattern      string // RE2; the match must end where the buffer ends
	Suffix       string // patternGeneratedMessageSuffix
	ClearAfter   time.Duration
	Never        bool   // clearAfter: never
	ClearPattern string // RE2, searched in each line
}

// Default paths.
const (
	kmsgPath     = "/dev/kmsg"
	journaldPath = "/var/log/journal"
)

func (d *document) systemLog(root *node) *LogMonitor {
	top := d.read(root, "", "plugin", "pluginConfig", "skipList", "logPath", "lookback", "delay",
		"bufferSize", "source", "metricsReporting", "conditions", "rules", "kernelOnly")
	m := &LogMonitor{
		LogSource: LogSource{
			Plugin:   top.required("plugin", ": want kmsg, journald or filelog"),
			Lookback: top.duration("lookback", 0, 0),
			Delay:    top.duration("delay", 0, 0),
			Skip:     top.texts("skipList", 100),
		},
		BufferSize: top.int("bufferSize", logpattern.NPDLines, 0, 1_000_000),
		Source:     top.text("source", ""),
		KernelOnly: top.bool("kernelOnly", false),
	}
	if m.BufferSize == 0 {
		m.BufferSize = logpattern.NPDLines
	}
	if m.BufferSize > logpattern.MaxLines {
		top.warnf("bufferSize", "patterns may span at most %d lines", logpattern.MaxLines)
		m.BufferSize = logpattern.MaxLines
	}
	top.metricsReporting()
	d.logSource(top, &m.LogSource)
	if m.KernelOnly && m.Plugin == "filelog" {
		top.errorf("kernelOnly", "can't be used with filelog: the writer of a line is unknown")
	}
	m.Conditions = d.conditions(top)
	for i, n := range top.items("rules", MaxFileRules) {
		m.Rules = append(m.Rules, d.logRule(n, i, m))
	}
	return m
}

// logSource reads the settings of the plugin.
func (d *document) logSource(top *reader, s *LogSource) {
	known := map[string][]string{"journald": {"source"}, "filelog": {"timestamp", "message", "timestampFormat"}}[s.Plugin]
	config := top.object("pluginConfig", known...)
	if s.Plugin != "filelog" && len(s.Skip) > 0 {
		top.warnf("skipList", "is for filelog only: ignored")
		s.Skip = nil
	}
	if slices.Contains(s.Skip, "") {
		top.errorf("skipList", "an empty text matches every line, so none would be read")
	}
	switch s.Plugin {
	case "":
	case "kmsg":
		s.Path = top.text("logPath", kmsgPath)
	case "journald":
		s.Path = top.text("logPath", journaldPath)
		s.Identifier = config.required("source", ": want the SYSLOG_IDENTIFIER of the lines to read")
	case "filelog":
		s.Path = top.required("logPath", "")
		s.Timestamp = config.regexp("timestamp", true, ": want the expression that finds a line's time")
		s.Message = config.regexp("message", true, ": want the expression that finds a line's text")
		s.TimestampFormat = config.required("timestampFormat", ": want the layout of a line's time")
	default:
		top.errorf("plugin", "unknown plugin %s: want kmsg, journald, filelog or custom", shown(s.Plugin))
	}
}

func (d *document) logRule(n *node, i int, m *LogMonitor) LogRule {
	r := d.read(n, fmt.Sprintf("rules[%d]", i), "type", "condition", "reason", "pattern",
		"patternGeneratedMessageSuffix", "clearAfter", "clearPattern")
	out := LogRule{Rule: r.rule(m.Conditions), Suffix: r.text("patternGeneratedMessageSuffix", "")}
	out.ClearAfter, out.Never = r.clearing()
	out.Pattern = r.required("pattern", "")
	out.ClearPattern = r.text("clearPattern", "")
	if len(out.Suffix) > 512 {
		r.errorf("patternGeneratedMessageSuffix", "has %d bytes, at most 512 are allowed", len(out.Suffix))
	}
	if out.Never && (!out.Permanent() || out.ClearPattern != "") {
		r.errorf("clearAfter", "never is only for permanent problems without clearPattern")
	}
	out.Pattern = r.pattern("pattern", out.Pattern, m.BufferSize, true)
	out.ClearPattern = r.pattern("clearPattern", out.ClearPattern, m.BufferSize, false)
	return out
}

// pattern checks a single pattern and returns it without group names. In a rule file
// named groups are fields, and not every group name is a valid field name.
func (r *reader) pattern(key, expr string, lines int, anchored bool) string {
	if expr == "" {
		return ""
	}
	expr = unnamed(expr)
	_, err := logpattern.Compile([]logpattern.Pattern{{Name: key, Expr: expr, Lines: lines, AnchorEnd: anchored}})
	if err == nil {
		return expr
	}
	if pe := (*logpattern.Error)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	r.errorf(key, "%v", err)
	return expr
}

// unnamed returns the expression with its named groups replaced by unnamed ones.
func unnamed(expr string) string {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || !dropNames(tree) {
		return expr
	}
	return tree.String()
}

func dropNames(tree *syntax.Regexp) bool {
	dropped := tree.Op == syntax.OpCapture && tree.Name != ""
	if dropped {
		tree.Name = ""
	}
	for _, sub := range tree.Sub {
		dropped = dropNames(sub) || dropped
	}
	return dropped
}
