package npd

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
)

// DefaultClearAfter is how long a condition set by a log line stays without a
// further one, where the file says nothing (NPD: until it is restarted). What
// lasts is logged again: a hung task every two minutes, a filesystem that shut
// down at each access. An hour is longer than those who repair nodes by
// conditions wait (10 to 30 minutes), and short enough that a fault which is over
// doesn't keep a node out of use.
const DefaultClearAfter = time.Hour

// Set is what files come to together.
type Set struct {
	// Rules say which rule of which file each rule is.
	Rules  []RuleInfo
	Logs   []LogSource
	Checks []*CheckMonitor
	Stats  []*StatsMonitor
	// Warnings are those of all files, and what is odd in them together.
	Warnings detector.Errors

	conditions []Condition
	docs       map[string][]byte
}

// RuleInfo is where a rule comes from and what NPD's reporting needs of it.
type RuleInfo struct {
	Name      string // of the rule in the layer
	File      string
	Line      int
	Source    string // the monitor's
	Condition string // empty: temporary
	Reason    string
	Metrics   bool // problem_counter and problem_gauge report it
}

// Layer is the rules as files for [detector.Load], to lie over the shipped rules
// and below the operator's own: "npd-conditions.yaml", "npd-logs.yaml" and
// "npd-checks.yaml", those that are not empty.
func (s *Set) Layer() fs.FS {
	out := make(fstest.MapFS, len(s.docs)) // a map as a file system; it has nothing of a test
	for name, data := range s.docs {
		out[name] = &fstest.MapFile{Data: data, Mode: 0o444}
	}
	return out
}

// Conditions are the condition types of all files, each once, with the default
// of the first that has it.
func (s *Set) Conditions() []Condition { return slices.Clone(s.conditions) }

// Names of the files in a [Set.Layer].
const (
	conditionsFile = "npd-conditions.yaml"
	logsFile       = "npd-logs.yaml"
	checksFile     = "npd-checks.yaml"
)

// Convert merges files, those that are skipped left out. The layers under what
// comes of them are under, nil for none: a rule whose condition and reason a rule
// there has too reports the same fault, and is its consequence (dependsOn), so
// that one fault is reported once. The files are not changed.
func Convert(files []*File, under *detector.RuleSet) (*Set, error) {
	c := &converter{
		set: &Set{docs: make(map[string][]byte)}, names: make(names), logNames: make(names),
		logs: make(map[string]int), from: make(map[string]string),
	}
	if under != nil {
		c.under = under.Rules()
	}
	stems := make(names)
	for _, f := range files {
		c.set.Warnings = append(c.set.Warnings, f.Warnings...)
		if f.Skipped != "" {
			c.warn(f.Name, 0, "", "skipped: "+f.Skipped)
			continue
		}
		c.file, c.stem = f.Name, stems.take(maxName, stem(f.Name))
		switch {
		case f.Log != nil:
			c.logMonitor(f.Log)
		case f.Checks != nil:
			c.checkMonitor(f.Checks)
		case f.Stats != nil:
			c.set.Stats = append(c.set.Stats, f.Stats)
		}
	}
	c.unset()
	return c.set, c.write()
}

// maxName is the longest name of a rule.
const maxName = 63

type converter struct {
	set      *Set
	under    []*detector.Rule
	names    names // of rules
	logNames names
	logs     map[string]int    // index in set.Logs by what is read how
	from     map[string]string // condition type to the file whose default counts

	file, stem string
	logRules   []yamlRule
	checkRules []yamlRule
}

func (c *converter) warn(file string, line int, field, msg string) {
	c.set.Warnings = append(c.set.Warnings, &detector.Error{File: file, Line: line, Field: field, Msg: msg})
}

// yamlRule is a rule as a rule file has it.
type yamlRule struct {
	Name         string   `yaml:"name"`
	Events       []string `yaml:"events,flow"`
	Logs         []string `yaml:"logs,omitempty,flow"`
	Pattern      string   `yaml:"pattern,omitempty"`
	AnchorEnd    bool     `yaml:"anchorEnd,omitempty"`
	Lines        int      `yaml:"lines,omitempty"`
	ClearPattern string   `yaml:"clearPattern,omitempty"`
	When         string   `yaml:"when,omitempty"`
	Condition    string   `yaml:"condition,omitempty"`
	Reason       string   `yaml:"reason"`
	Message      string   `yaml:"message"`
	ClearAfter   string   `yaml:"clearAfter,omitempty"`
	ClearWhen    string   `yaml:"clearWhen,omitempty"`
	Latched      bool     `yaml:"latched,omitempty"`
	DependsOn    []string `yaml:"dependsOn,omitempty,flow"`
}

// register adds condition types: several monitors of one type share it.
func (c *converter) register(conditions []Condition) {
	for _, n := range conditions {
		first, ok := c.from[n.Type]
		if !ok {
			c.from[n.Type] = c.file
			c.set.conditions = append(c.set.conditions, n)
			continue
		}
		i := slices.IndexFunc(c.set.conditions, func(o Condition) bool { return o.Type == n.Type })
		if o := c.set.conditions[i]; o.Reason != n.Reason || o.Message != n.Message {
			c.warn(c.file, n.Line, "conditions", "condition "+n.Type+" has another default in "+first+", which counts")
		}
	}
}

// rule makes what all rules have.
func (c *converter) rule(r *Rule, source string, metrics bool) yamlRule {
	out := yamlRule{Name: c.names.take(maxName, "npd", c.stem, r.Reason), Condition: r.Condition, Reason: r.Reason}
	c.set.Rules = append(c.set.Rules, RuleInfo{
		Name: out.Name, File: c.file, Line: r.Line, Source: source, Condition: r.Condition, Reason: r.Reason, Metrics: metrics,
	})
	return out
}

func (c *converter) logMonitor(m *LogMonitor) {
	c.register(m.Conditions)
	log := c.source(m.LogSource)
	for i := range m.Rules {
		r := &m.Rules[i]
		out := c.rule(&r.Rule, m.Source, m.Metrics)
		out.Events, out.Logs = []string{"log"}, []string{log}
		out.Pattern, out.AnchorEnd, out.ClearPattern = r.Pattern, true, r.ClearPattern
		if m.BufferSize != logpattern.NPDLines || r.ClearPattern != "" {
			out.Lines = m.BufferSize
		}
		if m.KernelOnly {
			out.When = `log.origin == "kernel"`
		}
		out.Message = "${log.text}"
		if r.Suffix != "" {
			out.Message += "; " + strings.ReplaceAll(r.Suffix, "${", "$${")
		}
		c.clearing(&out, r)
		c.logRules = append(c.logRules, out)
	}
}

// clearing sets when a problem of the rule is over.
func (c *converter) clearing(out *yamlRule, r *LogRule) {
	after := time.Duration(0)
	switch {
	case r.Never:
		out.Latched = true
	case r.ClearAfter > 0:
		after = r.ClearAfter
	case r.Permanent() && r.ClearPattern == "":
		after = DefaultClearAfter
	}
	for _, u := range c.under {
		if u.Reason != r.Reason || u.Condition != r.Condition {
			continue
		}
		out.DependsOn = append(out.DependsOn, u.Name)
		if !r.Permanent() || r.Never {
			continue
		}
		// What ends the fault for the one ends it for the other, unless the file
		// says otherwise.
		if out.ClearWhen == "" && strings.HasPrefix(u.ClearWhen, "event.kind ==") {
			out.ClearWhen = u.ClearWhen
		}
		if out.ClearPattern == "" {
			out.ClearPattern = u.ClearPattern
		}
		if r.ClearAfter == 0 && after > 0 && u.ClearAfter > 0 {
			after = min(after, u.ClearAfter)
		}
	}
	if after > 0 {
		out.ClearAfter = after.String()
	}
}

// source returns the name of the log; monitors that read the same log the same
// way share it.
func (c *converter) source(s LogSource) string {
	key := fmt.Sprintf("%q %q %q %q %q %q %q %v", s.Plugin, s.Path, s.Identifier, s.Timestamp, s.Message, s.TimestampFormat, s.Skip, s.Delay)
	if i, ok := c.logs[key]; ok {
		have := &c.set.Logs[i]
		have.Lookback = max(have.Lookback, s.Lookback)
		return have.Name
	}
	switch s.Plugin {
	case "kmsg":
		s.Name = c.logNames.take(maxName, "kmsg") // the name that shipped rules have for the kernel's log
	case "journald":
		s.Name = c.logNames.take(maxName, "journald", s.Identifier)
	default:
		s.Name = c.logNames.take(maxName, "file", s.Path)
	}
	s.Skip = slices.Clone(s.Skip)
	c.logs[key] = len(c.set.Logs)
	c.set.Logs = append(c.set.Logs, s)
	return s.Name
}

// unset reports conditions that no rule sets.
func (c *converter) unset() {
	for _, n := range c.set.conditions {
		sets := func(condition string) bool { return condition == n.Type }
		if slices.ContainsFunc(c.set.Rules, func(r RuleInfo) bool { return sets(r.Condition) }) ||
			slices.ContainsFunc(c.under, func(r *detector.Rule) bool { return sets(r.Condition) }) {
			continue
		}
		c.warn(c.from[n.Type], n.Line, "conditions", "no rule sets condition "+n.Type+": it stays Unknown")
	}
}

// write makes the files of the layer.
func (c *converter) write() error {
	type spec struct {
		HealthyReason  string `yaml:"healthyReason"`
		HealthyMessage string `yaml:"healthyMessage"`
	}
	type doc struct {
		APIVersion string          `yaml:"apiVersion"`
		Conditions map[string]spec `yaml:"conditions,omitempty"`
		Rules      []yamlRule      `yaml:"rules,omitempty"`
	}
	conditions := make(map[string]spec)
	for _, n := range c.set.conditions {
		conditions[n.Type] = spec{n.Reason, n.Message}
	}
	for name, d := range map[string]doc{
		conditionsFile: {Conditions: conditions},
		logsFile:       {Rules: c.logRules},
		checksFile:     {Rules: c.checkRules},
	} {
		if len(d.Conditions) == 0 && len(d.Rules) == 0 {
			continue
		}
		d.APIVersion = detector.APIVersion
		data, err := yaml.Marshal(d)
		if err != nil {
			return fmt.Errorf("npd: %s: %w", name, err)
		}
		c.set.docs[name] = data
	}
	return nil
}
