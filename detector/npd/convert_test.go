package npd_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/detector/problem"
)

// node runs converted files on an engine with a simulated clock.
type node struct {
	t      *testing.T
	engine *detector.Engine
	now    event.Moment
	set    *npd.Set
}

func newNode(t *testing.T, files ...*npd.File) *node {
	t.Helper()
	return newNodeOver(t, detector.Shipped(), files...)
}

func newNodeOver(t *testing.T, below fs.FS, files ...*npd.File) *node {
	t.Helper()
	under, err := detector.Load(below)
	noError(t, err)
	set, err := npd.Convert(files, under)
	noError(t, err)
	loaded, err := detector.Load(below, set.Layer)
	noError(t, err)
	n := &node{t: t, engine: detector.NewEngine(loaded), now: event.Moment{Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Boot: time.Hour}, set: set}
	for _, stem := range []string{"log", "fserror", "oomkill", "hungtask", "mount", "check"} {
		n.observe(&event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: stem, Up: true}})
	}
	return n
}

func (n *node) observe(ev *event.Event) []problem.Transition {
	ev.Time = n.now.Wall
	return n.engine.Observe(ev, n.now)
}

func (n *node) log(origin string, lines ...string) []problem.Transition {
	n.now = n.now.Add(time.Second)
	return n.observe(&event.Event{Kind: event.Log, Log: &event.LogData{Log: "kmsg", Origin: origin, Text: strings.Join(lines, "\n")}})
}

func (n *node) after(d time.Duration) *node {
	n.now = n.now.Add(d)
	n.engine.Tick(n.now)
	return n
}

func (n *node) condition(t string, want problem.Status) problem.Condition {
	n.t.Helper()
	for _, c := range n.engine.Conditions() {
		if c.Type == t {
			if c.Status != want {
				n.t.Errorf("%s is %s (%s: %s), want %s", t, c.Status, c.Reason, c.Message, want)
			}
			return c
		}
	}
	n.t.Fatalf("no condition %s", t)
	return problem.Condition{}
}

func (n *node) firing(prefix string) []string {
	var out []string
	for _, p := range n.engine.Problems() {
		if p.State == problem.Firing && strings.HasPrefix(p.Rule, prefix) {
			out = append(out, p.Reason+": "+p.Message)
		}
	}
	return out
}

const deadlock = `"conditions": [{"type": "Deadlock", "reason": "NoDeadlock", "message": "all runs"}], "rules": [`

func TestTemporaryIsAnEventWithItsLines(t *testing.T) {
	n := newNode(t, parse(t, "a.json", logHead+`"rules": [
		{"type": "temporary", "reason": "Split", "pattern": "one \\d+\\ntwo (?P<in>\\d+)", "patternGeneratedMessageSuffix": "see ${runbook}"},
		{"type": "temporary", "reason": "Open", "pattern": "three"}]}`))
	n.log("kernel", "one 1", "two 2")
	equal(t, []string{`Split: one 1\ntwo 2; see ${runbook}`}, n.firing("npd-"))
	// The match must end at the end of the line.
	n.log("kernel", "three four")
	equal(t, 1, len(n.firing("npd-")))
	n.log("kernel", "a three")
	equal(t, []string{"Open: a three", `Split: one 1\ntwo 2; see ${runbook}`}, n.firing("npd-"))
	n.after(6 * time.Minute)
	equal(t, nil, n.firing("npd-"))
}

func TestConditionClearsByItself(t *testing.T) {
	n := newNode(t, parse(t, "a.json", logHead+deadlock+`{"type": "permanent", "condition": "Deadlock", "reason": "DockerHung", "pattern": "docker hangs"}]}`))
	c := n.condition("Deadlock", problem.False)
	equal(t, "NoDeadlock: all runs", c.Reason+": "+c.Message)
	n.log("kernel", "docker hangs")
	c = n.condition("Deadlock", problem.True)
	equal(t, "DockerHung: docker hangs", c.Reason+": "+c.Message)
	n.after(59 * time.Minute)
	n.log("kernel", "docker hangs")
	n.after(59*time.Minute).condition("Deadlock", problem.True)
	c = n.after(2*time.Minute).condition("Deadlock", problem.False)
	equal(t, "NoDeadlock", c.Reason)
}

func TestClearingAsTheFileSays(t *testing.T) {
	n := newNode(t, parse(t, "a.json", logHead+`"conditions": [{"type": "A", "reason": "Fine"}, {"type": "B", "reason": "Fine"}, {"type": "C", "reason": "Fine"}], "rules": [
		{"type": "permanent", "condition": "A", "reason": "Bad", "pattern": "bad", "clearAfter": "10m"},
		{"type": "permanent", "condition": "B", "reason": "Bad", "pattern": "bad", "clearPattern": "good$"},
		{"type": "permanent", "condition": "C", "reason": "Bad", "pattern": "bad", "clearAfter": "never"}]}`))
	n.log("kernel", "bad")
	n.after(11*time.Minute).condition("A", problem.False)
	n.condition("B", problem.True)
	n.log("kernel", "all good")
	n.condition("B", problem.False)
	n.after(25*24*time.Hour).condition("C", problem.True)
}

func TestMonitorsOfOneConditionShareIt(t *testing.T) {
	n := newNode(t,
		parse(t, "a.json", logHead+deadlock+`{"type": "permanent", "condition": "Deadlock", "reason": "DockerHung", "pattern": "docker hangs", "clearPattern": "docker runs"}]}`),
		parse(t, "b.json", logHead+`"conditions": [{"type": "Deadlock", "reason": "Other", "message": "all runs"}], "rules": [
			{"type": "permanent", "condition": "Deadlock", "reason": "NFSHung", "pattern": "nfs hangs", "clearPattern": "nfs runs"}]}`))
	equal(t, "b.json:1: conditions: condition Deadlock has another default in a.json, which is used", n.set.Warnings.Error())
	n.log("kernel", "docker hangs")
	n.log("kernel", "nfs hangs")
	n.log("kernel", "docker runs")
	equal(t, "NFSHung", n.condition("Deadlock", problem.True).Reason)
	n.log("kernel", "nfs runs")
	equal(t, "NoDeadlock", n.condition("Deadlock", problem.False).Reason)
	equal(t, 1, len(n.set.Logs))
}

func TestKernelOnly(t *testing.T) {
	rule := `"rules": [{"type": "temporary", "reason": "R", "pattern": "bad"}]}`
	anybody := newNode(t, parse(t, "a.json", logHead+rule))
	anybody.log("user", "bad")
	equal(t, []string{"R: bad"}, anybody.firing("npd-"))
	kernel := newNode(t, parse(t, "a.json", logHead+`"kernelOnly": true, `+rule))
	kernel.log("user", "bad")
	equal(t, nil, kernel.firing("npd-"))
	kernel.log("kernel", "bad")
	equal(t, []string{"R: bad"}, kernel.firing("npd-"))
}

// TestOneFaultIsReportedOnce checks that a rule in the layer below hides the line's
// problem, and that an event that ends the fault there also ends it here.
func TestOneFaultIsReportedOnce(t *testing.T) {
	n := newNodeOver(t, fstest.MapFS{"fserror.yaml": {Data: []byte(`apiVersion: rules.kernosis.io/v1
conditions:
  ReadonlyFilesystem: {healthyReason: FilesystemIsNotReadOnly, healthyMessage: fine}
rules:
- name: readonly-filesystem
  events: [mount.readonly]
  groupBy: [device.name]
  condition: ReadonlyFilesystem
  reason: FilesystemIsReadOnly
  message: ${event.fsType} on ${device.name} at ${event.path} refuses writes
  clearWhen: event.kind == "mount.writable"
`)}}, parse(t, "readonly-monitor.json", logHead+`"conditions": [{"type": "ReadonlyFilesystem", "reason": "FilesystemIsNotReadOnly"}], "rules": [
		{"type": "permanent", "condition": "ReadonlyFilesystem", "reason": "FilesystemIsReadOnly", "pattern": "Remounting filesystem read-only"}]}`))
	line := "EXT4-fs (sda1): Remounting filesystem read-only"
	mount := func(k event.Kind) *event.Event {
		return &event.Event{Kind: k, Device: &event.Device{Name: "sda1", Major: 8, Minor: 1}, Mount: &event.MountData{Path: "/data", FSType: "ext4"}}
	}
	n.log("kernel", line)
	equal(t, line, n.condition("ReadonlyFilesystem", problem.True).Message)
	n.after(time.Second).observe(mount(event.MountReadOnly))
	c := n.condition("ReadonlyFilesystem", problem.True)
	if !strings.HasPrefix(c.Message, "ext4 on sda1 at /data refuses writes") || strings.Contains(c.Message, "more)") {
		t.Error(c.Message)
	}
	n.after(time.Second).observe(mount(event.MountWritable))
	n.condition("ReadonlyFilesystem", problem.False)
	equal(t, nil, n.firing("npd-"))
}

// TestClearsAsTheRuleBelow checks that a rule clears with the line of the rule below, and not
// later than that rule.
func TestClearsAsTheRuleBelow(t *testing.T) {
	below := fstest.MapFS{"deadlock.yaml": {Data: []byte(`apiVersion: rules.kernosis.io/v1
conditions:
  Deadlock: {healthyReason: NoDeadlock, healthyMessage: fine}
rules:
- name: deadlock
  events: [log]
  logs: [other]
  pattern: (?P<task>\w+) hangs
  clearPattern: ^(?P<task>\w+) runs$
  groupBy: [match.task]
  condition: Deadlock
  reason: Hung
  message: ${match.task} hangs
  clearAfter: 10m
`)}}
	hung := `{"type": "permanent", "condition": "Deadlock", "reason": "Hung", "pattern": "a hangs"`
	n := newNodeOver(t, below, parse(t, "a.json", logHead+deadlock+hung+`}]}`))
	n.log("kernel", "a hangs")
	n.condition("Deadlock", problem.True)
	n.log("kernel", "a runs")
	n.condition("Deadlock", problem.False)
	n.log("kernel", "a hangs")
	n.after(11*time.Minute).condition("Deadlock", problem.False)
	// The file's clearAfter takes precedence.
	n = newNodeOver(t, below, parse(t, "a.json", logHead+deadlock+hung+`, "clearAfter": "20m"}]}`))
	n.log("kernel", "a hangs")
	n.after(11*time.Minute).condition("Deadlock", problem.True)
	n.after(11*time.Minute).condition("Deadlock", problem.False)
}

// A shipped rule whose pattern also matches the end of its fault ends the file's problem as well.
func TestClearsWithTheLinesOfAShippedRule(t *testing.T) {
	n := newNode(t, parse(t, "a.json", logHead+`"conditions": [{"type": "XfsShutdown", "reason": "XfsHasNotShutDown"}], "rules": [
		{"type": "permanent", "condition": "XfsShutdown", "reason": "XfsHasShutdown", "pattern": "XFS .* Shutting down filesystem.?"}]}`))
	n.log("kernel", "XFS (sda1): Log I/O Error Detected.  Shutting down filesystem")
	n.condition("XfsShutdown", problem.True)
	equal(t, 1, len(n.firing("npd-")))
	for _, tr := range n.log("kernel", "XFS (sda1): Unmounting Filesystem") {
		if p := tr.Problem; p != nil && p.State == problem.Firing {
			t.Errorf("%s is announced", p.Rule)
		}
	}
	n.condition("XfsShutdown", problem.False)
	equal(t, nil, n.firing("npd-"))
}

func TestNames(t *testing.T) {
	set, err := npd.Convert([]*npd.File{
		parse(t, "x/kernel-monitor.json", logHead+`"rules": [{"type": "temporary", "reason": "KernelOops", "pattern": "a"}, {"type": "temporary", "reason": "KernelOops", "pattern": "b"}]}`),
		parse(t, "y/kernel-monitor.json", logHead+`"rules": [{"type": "temporary", "reason": "KernelOops", "pattern": "a"}]}`),
		parse(t, strings.Repeat("long-", 20)+".json", logHead+`"metricsReporting": false, "rules": [{"type": "temporary", "reason": "R", "pattern": "a"}]}`),
	}, nil)
	noError(t, err)
	rules, err := detector.Load(set.Layer)
	noError(t, err)
	var got []string
	for _, r := range rules.Rules() {
		got = append(got, r.Name)
		if len(r.Name) > 63 {
			t.Error(r.Name)
		}
	}
	equal(t, []string{
		"npd-kernel-monitor-kerneloops", "npd-kernel-monitor-kerneloops-2", "npd-kernel-monitor-2-kerneloops",
		"npd-long-long-long-long-long-long-long-long-long-long-" + got[3][54:],
	}, got)
	equal(t, "KernelOops", rules.Rules()[0].Reason)
}

func TestChecksOfOneProgramRunOnce(t *testing.T) {
	set, err := npd.Convert([]*npd.File{parse(t, "ntp.json", checkHead+`"conditions": [{"type": "NTPProblem", "reason": "NTPIsUp"}], "rules": [
		{"type": "temporary", "reason": "NTPIsDown", "path": "/check"},
		{"type": "permanent", "condition": "NTPProblem", "reason": "NTPIsDown", "path": "/check"},
		{"type": "temporary", "reason": "Other", "path": "/check", "args": ["x"]}]}`)}, nil)
	noError(t, err)
	var got []string
	for _, r := range set.Checks[0].Rules {
		got = append(got, r.Check)
	}
	equal(t, []string{"npd-ntp-ntpisdown", "npd-ntp-ntpisdown", "npd-ntp-other"}, got)
}

func TestCheckProgramsSetAndClearTheirCondition(t *testing.T) {
	n := newNode(t, parse(t, "ntp.json", checkHead+`"conditions": [{"type": "NTPProblem", "reason": "NTPIsUp", "message": "ntp is up"}], "rules": [
		{"type": "temporary", "reason": "NTPIsDown", "path": "/check"},
		{"type": "permanent", "condition": "NTPProblem", "reason": "NTPIsDown", "path": "/check"}]}`))
	result := func(status, message string) []problem.Transition {
		n.now = n.now.Add(30 * time.Second)
		return n.observe(&event.Event{Kind: event.Check, Check: &event.CheckData{Check: n.set.Checks[0].Rules[0].Check, Status: status, Message: message}})
	}
	result(event.CheckOK, "")
	equal(t, "ntp is up", n.condition("NTPProblem", problem.False).Message)
	result(event.CheckProblem, "offset 3s")
	c := n.condition("NTPProblem", problem.True)
	equal(t, "NTPIsDown: offset 3s", c.Reason+": "+c.Message)
	equal(t, 2, len(n.firing("npd-")))
	result(event.CheckOK, "")
	n.condition("NTPProblem", problem.False)
	equal(t, nil, n.firing("npd-"))
	// A program without a result reports neither a problem nor health.
	result(event.CheckUnknown, "timed out")
	n.condition("NTPProblem", problem.Unknown)
	equal(t, nil, n.firing("npd-"))
	result(event.CheckOK, "")
	n.condition("NTPProblem", problem.False)
}
