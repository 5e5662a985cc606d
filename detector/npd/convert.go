package npd

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
)

// DefaultClearAfter is how long a condition set by a log line stays True without a further matching
// line, unless the file sets clearAfter (NPD: until it restarts). Lasting faults are logged again:
// a hung task every two minutes, a filesystem that shut down at each access. An hour is longer than
// node repair systems wait on a condition (10 to 30 minutes), and short enough that a past fault
// doesn't keep a node out of use.
const DefaultClearAfter = time.Hour

// Set is the result of converting files.
type Set struct {
	Logs   []LogSource
	Checks []*CheckMonitor
	Stats  []*StatsMonitor
	// Warnings holds the warnings of all files, and those on their combination.
	Warnings detector.Errors
	// Layer holds the rules as a layer for [detector.Load], to be used above the shipped rules and
	// below the operator's own.
	Layer fs.FS

	conditions []registered // of all files
}

// Convert merges files, except skipped ones. under holds the rules of the layers below the result;
// it may be nil. It must not include the operator's own rules, because these may name rules of the
// result. A rule with the same condition and reason as a rule in under reports the same fault, so
// it depends on that rule (dependsOn) and the fault is reported once. The files are not changed.
func Convert(files []*File, under *detector.RuleSet) (*Set, error) {
	c := &converter{
		set: &Set{}, file: detector.RuleFile{Conditions: make(map[string]detector.ConditionSpec)}, names: make(names), logNames: make(names),
		logs: make(map[string]int),
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
		c.from, c.stem = f.Name, stems.take(maxName, stem(f.Name))
		switch {
		case f.Log != nil:
			c.logMonitor(f.Log)
		case f.Checks != nil:
			c.checkMonitor(f.Checks)
		case f.Stats != nil:
			c.set.Stats = append(c.set.Stats, f.Stats)
		}
	}
	var err error
	c.set.Layer, err = c.file.Layer("npd.yaml")
	return c.set, err
}

// maxName is the longest name of a rule.
const maxName = 63

type converter struct {
	set      *Set
	file     detector.RuleFile
	under    []*detector.Rule
	names    names // of rules
	logNames names
	logs     map[string]int // index in set.Logs by source and settings

	from, stem string // of the file that is being converted
}

// registered is a condition type with the file whose default is used.
type registered struct {
	Condition
	file string
}

func (c *converter) warn(file string, line int, field, msg string) {
	c.set.Warnings = append(c.set.Warnings, &detector.Error{File: file, Line: line, Field: field, Msg: msg})
}

// register adds condition types. Monitors with the same type share it.
func (c *converter) register(conditions []Condition) {
	for _, n := range conditions {
		i := slices.IndexFunc(c.set.conditions, func(o registered) bool { return o.Type == n.Type })
		if i < 0 {
			c.set.conditions = append(c.set.conditions, registered{n, c.from})
			c.file.Conditions[n.Type] = detector.ConditionSpec{HealthyReason: n.Reason, HealthyMessage: n.Message}
			continue
		}
		if o := c.set.conditions[i]; o.Reason != n.Reason || o.Message != n.Message {
			c.warn(c.from, n.Line, "conditions", "condition "+n.Type+" has another default in "+o.file+", which is used")
		}
	}
}

// rule adds a rule with the fields that all rules have.
func (c *converter) rule(r *Rule) *detector.Rule {
	out := &detector.Rule{Name: c.names.take(maxName, "npd", c.stem, r.Reason), Condition: r.Condition, Reason: r.Reason}
	c.file.Rules = append(c.file.Rules, out)
	return out
}

func (c *converter) logMonitor(m *LogMonitor) {
	c.register(m.Conditions)
	log := c.source(m.LogSource)
	for i := range m.Rules {
		r := &m.Rules[i]
		out := c.rule(&r.Rule)
		out.Events, out.Logs = []event.Kind{event.Log}, []string{log}
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
		c.clearing(out, r, m.Plugin == "kmsg" || m.Identifier == event.OriginKernel)
	}
}

// clearing sets when a problem of the rule ends. kernel: its log has the kernel's lines.
func (c *converter) clearing(out *detector.Rule, r *LogRule, kernel bool) {
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
		// The rule clears like the rule in under, unless the file says otherwise.
		if out.ClearWhen == "" && strings.HasPrefix(u.ClearWhen, "event.kind ==") {
			out.ClearWhen = u.ClearWhen
		}
		if out.ClearPattern == "" {
			out.ClearPattern = u.ClearPattern
		}
		if out.ClearPattern == "" && out.ClearWhen == "" && kernel && strings.HasPrefix(u.ClearWhen, "log.") {
			out.ClearPattern = u.Pattern // its other lines end its problem
		}
		if r.ClearAfter == 0 && after > 0 && u.ClearAfter > 0 {
			after = min(after, u.ClearAfter)
		}
	}
	out.ClearAfter = after
}

// source returns the name of the log. Monitors that read the same log with the same
// settings share it.
func (c *converter) source(s LogSource) string {
	key := fmt.Sprintf("%q %q %q %q %q %q %q %v", s.Plugin, s.Path, s.Identifier, s.Timestamp, s.Message, s.TimestampFormat, s.Skip, s.Delay)
	if i, ok := c.logs[key]; ok {
		have := &c.set.Logs[i]
		have.Lookback = max(have.Lookback, s.Lookback)
		return have.Name
	}
	switch s.Plugin {
	case "kmsg":
		s.Name = c.logNames.take(maxName, "kmsg") // the shipped rules' name for the kernel log
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

// Unset returns a warning for each condition of the files that no rule in force sets.
func (s *Set) Unset(rules *detector.RuleSet) (warnings detector.Errors) {
	for _, n := range s.conditions {
		if !slices.ContainsFunc(rules.Rules(), func(r *detector.Rule) bool { return r.Condition == n.Type }) {
			warnings = append(warnings, &detector.Error{File: n.file, Line: n.Line, Field: "conditions", Msg: "no rule sets condition " + n.Type + ": it stays Unknown"})
		}
	}
	return warnings
}

// checkMonitor creates rules for the results of check programs: events of kind check, whose
// event.check names the program. Only the status "problem" is a problem. A program without a result
// (exit code 2, timeout) makes its conditions Unknown, because it is its own source.
func (c *converter) checkMonitor(in *CheckMonitor) {
	c.register(in.Conditions)
	m := *in
	m.Rules = make([]CheckRule, len(in.Rules))
	checks := make(map[string]string) // check name by program and settings
	for i, r := range in.Rules {
		out := c.rule(&r.Rule)
		key := fmt.Sprintf("%q %q %v %v", r.Path, r.Args, r.Timeout, r.InvokeInterval)
		if checks[key] == "" {
			checks[key] = out.Name
		}
		r.Check = checks[key]
		m.Rules[i] = r
		// Names are letters, digits and dashes: nothing to escape.
		out.Events = []event.Kind{event.Check}
		out.When = fmt.Sprintf(`event.check == "%s" && event.status == "problem"`, r.Check)
		out.ClearWhen = fmt.Sprintf(`event.check == "%s" && event.status == "ok"`, r.Check)
		out.Message = "${event.message}"
	}
	c.set.Checks = append(c.set.Checks, &m)
}
