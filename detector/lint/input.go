package lint

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

// Input is what [Check] checks.
type Input struct {
	Rules      []Rule
	Conditions []Condition
	Alerts     []Alert
}

// Rule is a rule with a pattern, or without one (Expr empty). The latter matters only for its names.
type Rule struct {
	File      string
	Line      int
	Reason    string
	Condition string // empty: temporary
	Healthy   string // reason of the condition while nothing is wrong
	Expr      string
	Lines     int  // buffer size, or lines that the pattern may span; 0: derived from the pattern
	AnchorEnd bool // the match must end where the buffer does
	Kernel    bool // the log contains kernel messages
	Logs      string
	Narrowed  bool // an expression (when) further restricts the lines
	Context   bool // not checked itself; from a layer below the checked files
}

// Condition is a registered condition type.
type Condition struct {
	Type string
	File string // where it is registered; empty: not checked itself
	Line int
}

// FromNPD adds the rules of node-problem-detector's files, except skipped files.
func (in *Input) FromNPD(files []*npd.File) {
	for _, f := range files {
		if f.Skipped != "" {
			continue
		}
		switch {
		case f.Log != nil:
			in.conditions(f.Name, f.Log.Conditions)
			kernel, logs := kernelLog(&f.Log.LogSource), strings.Join([]string{f.Log.Plugin, f.Log.Path, f.Log.Identifier}, " ")
			for i := range f.Log.Rules {
				r := &f.Log.Rules[i]
				out := npdRule(f, &r.Rule, f.Log.Conditions)
				out.Expr, out.Lines, out.AnchorEnd, out.Kernel, out.Logs = r.Pattern, f.Log.BufferSize, true, kernel, logs
				in.Rules = append(in.Rules, out)
			}
		case f.Checks != nil:
			in.conditions(f.Name, f.Checks.Conditions)
			for i := range f.Checks.Rules {
				r := &f.Checks.Rules[i]
				out := npdRule(f, &r.Rule, f.Checks.Conditions)
				out.counter(r)
				in.Rules = append(in.Rules, out)
			}
		}
	}
}

func npdRule(f *npd.File, r *npd.Rule, conditions []npd.Condition) Rule {
	out := Rule{File: f.Name, Line: r.Line, Reason: r.Reason, Condition: r.Condition}
	for _, c := range conditions {
		if c.Type == r.Condition {
			out.Healthy = c.Reason
		}
	}
	return out
}

func (in *Input) conditions(file string, list []npd.Condition) {
	for _, c := range list {
		in.Conditions = append(in.Conditions, Condition{c.Type, file, c.Line})
	}
}

// kernelLog reports whether a source reads kernel messages.
func kernelLog(s *npd.LogSource) bool {
	switch s.Plugin {
	case "kmsg":
		return true
	case "journald":
		return s.Identifier == "kernel"
	}
	return strings.HasPrefix(filepath.Base(s.Path), "kern") || strings.Contains(s.Message, "kernel:")
}

// counter takes over the pattern that a log-counter check counts. It matches like the
// patterns of log monitors.
func (r *Rule) counter(check *npd.CheckRule) {
	if filepath.Base(check.Path) != "log-counter" {
		return
	}
	for _, a := range check.Args {
		a = strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-")
		if expr, ok := strings.CutPrefix(a, "pattern="); ok {
			r.Expr, r.Lines, r.AnchorEnd = expr, logpattern.NPDLines, true
		}
		if source, ok := strings.CutPrefix(a, "journald-source="); ok {
			r.Kernel, r.Logs = source == "kernel", "counter "+source
		}
	}
}

// FromRules adds the rules of a rule set. Rules of files for which own returns true are
// checked; the others are context.
func (in *Input) FromRules(set *detector.RuleSet, own func(file string) bool) {
	healthy := make(map[string]string)
	for _, c := range set.Conditions() {
		in.Conditions = append(in.Conditions, Condition{Type: c.Type})
		healthy[c.Type] = c.HealthyReason
	}
	for _, r := range set.Rules() {
		out := Rule{
			File: r.File, Line: r.Line, Reason: r.Reason, Condition: r.Condition, Healthy: healthy[r.Condition], Context: !own(r.File),
			Expr: r.Pattern, Lines: r.Lines, AnchorEnd: r.AnchorEnd, Logs: strings.Join(r.Logs, " "),
			Narrowed: r.When != "", Kernel: len(r.Logs) == 0 || slices.Contains(r.Logs, "kmsg") || slices.Contains(r.Logs, event.KernelLogs),
		}
		in.Rules = append(in.Rules, out)
	}
}
