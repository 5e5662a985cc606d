package npd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// CheckMonitor is a custom-plugin-monitor: check programs that run periodically.
type CheckMonitor struct {
	Source          string
	InvokeInterval  time.Duration // default 30s
	Timeout         time.Duration // default 5s
	MaxOutputLength int           // bytes of a program's output that are reported; default 80
	Concurrency     int           // programs that run at a time; default 3
	Conditions      []Condition
	Rules           []CheckRule
}

// CheckRule is a rule of a CheckMonitor.
type CheckRule struct {
	Rule
	Path           string
	Args           []string
	Timeout        time.Duration // default and maximum: the monitor's
	InvokeInterval time.Duration // default: the monitor's
	// Builtin is health-checker or log-counter if Path names that NPD program and
	// it doesn't exist: Kernosis has them as commands with NPD's flags.
	Builtin string
	// Check is the name of the program's results, set by [Convert]. Rules that run
	// the same program share it, and the program runs once for all of them.
	Check string
}

// NPD's defaults and our bounds.
const (
	defaultInterval    = 30 * time.Second
	defaultTimeout     = 5 * time.Second
	defaultMaxOutput   = 80
	defaultConcurrency = 3
	// maxOutput is how much of a program's output NPD reads.
	maxOutput = 4096
	// maxConcurrency bounds the programs that run at a time.
	maxConcurrency = 100
	// minInterval keeps a mistake from causing a busy loop.
	minInterval = time.Second
)

func (d *document) customPlugin(root *node, anyProgram bool) *CheckMonitor {
	top := d.read(root, "", "plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules")
	if plugin := top.required("plugin", `: want custom`); plugin != "custom" && plugin != "" {
		top.errorf("plugin", "unknown plugin %s: want custom", shown(plugin))
	}
	config := top.object("pluginConfig", "invoke_interval", "timeout", "max_output_length", "concurrency",
		"enable_message_change_based_condition_update", "skip_initial_status")
	m := &CheckMonitor{
		Source:          top.text("source", ""),
		InvokeInterval:  config.duration("invoke_interval", defaultInterval, minInterval),
		Timeout:         config.duration("timeout", defaultTimeout, time.Millisecond),
		MaxOutputLength: config.int("max_output_length", defaultMaxOutput, 1, maxOutput),
		Concurrency:     config.int("concurrency", defaultConcurrency, 1, maxConcurrency),
		Conditions:      d.conditions(top),
	}
	top.metricsReporting()
	config.bool("skip_initial_status", false) // there is none to skip: a condition is Unknown until its check has run
	if config.bool("enable_message_change_based_condition_update", false) {
		config.warnf("enable_message_change_based_condition_update", "ignored: a condition keeps its first message; later ones are in the check's events")
	}
	for i, n := range top.items("rules", MaxFileRules) {
		m.Rules = append(m.Rules, d.checkRule(n, i, m, anyProgram))
	}
	return m
}

func (d *document) checkRule(n *node, i int, m *CheckMonitor, anyProgram bool) CheckRule {
	r := d.read(n, fmt.Sprintf("rules[%d]", i), "type", "condition", "reason", "path", "args", "timeout", "invoke_interval")
	out := CheckRule{
		Rule:           r.rule(m.Conditions),
		Path:           r.required("path", ": want the program that checks"),
		Args:           r.texts("args", 100),
		Timeout:        r.duration("timeout", m.Timeout, time.Millisecond),
		InvokeInterval: r.duration("invoke_interval", m.InvokeInterval, minInterval),
	}
	if out.Timeout > m.Timeout {
		r.errorf("timeout", "%v is more than the %v that pluginConfig.timeout allows", out.Timeout, m.Timeout)
	}
	if _, err := os.Stat(out.Path); out.Path != "" && !anyProgram && errors.Is(err, fs.ErrNotExist) {
		switch base := filepath.Base(out.Path); base {
		case "health-checker", "log-counter":
			out.Builtin = base
		default:
			r.errorf("path", "%s does not exist", shown(out.Path))
		}
	}
	return out
}
