package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs/journald"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/collector/plugin"
	"github.com/kernosis/kernosis/detector/npd"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A journal that node-problem-detector's files expect on disk is read where journald keeps it.
func TestNPDJournalInMemory(t *testing.T) {
	set := &npd.Set{Logs: []npd.LogSource{{Name: "j", Plugin: "journald", Path: journald.Folder}, {Name: "own", Plugin: "journald", Path: "/own"}}}
	root := t.TempDir()
	look := func(want string) {
		t.Helper()
		logs := npdLogs(nil, set, root)
		if logs[0].Path != want || logs[1].Path != "/own" {
			t.Errorf("paths %q, %q; want %q, /own", logs[0].Path, logs[1].Path, want)
		}
	}
	look("")
	folder := filepath.Join(root, journald.Folder, "0123456789abcdef0123456789abcdef")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	look("")
	if err := os.WriteFile(filepath.Join(folder, "system.journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look(journald.Folder)
}

// The rules of all share a log that is read once: a monitor's delay must not hide the first lines
// after a boot from the shipped rules.
func TestNPDDelayOfASharedLog(t *testing.T) {
	for configured, want := range map[time.Duration]time.Duration{0: 0, time.Minute: time.Minute, time.Hour: 5 * time.Minute} {
		kmsg := parseLog("kmsg")
		kmsg.Delay = configured
		set := &npd.Set{Logs: []npd.LogSource{{Name: "kmsg", Plugin: "kmsg", Delay: 5 * time.Minute}}}
		if logs := npdLogs([]logsource.Config{kmsg}, set, t.TempDir()); len(logs) != 1 || logs[0].Delay != want {
			t.Errorf("configured delay %v: %+v", configured, logs)
		}
	}
}

const doorRules = `conditions:
  DoorOpen: {healthyReason: DoorIsShut, healthyMessage: the door is shut}
  DoorBad: {healthyReason: DoorIsGood, healthyMessage: the door is good}
rules:
- {name: door, events: [check], when: 'event.check == "door" && event.status == "problem"', clearWhen: 'event.check == "door" && event.status == "ok"', condition: DoorOpen, reason: DoorIsOpen, message: m}
`

// statusOf returns the status and reason of a condition.
func (a *pipeline) statusOf(conditionType string) string {
	for _, c := range a.conditions() {
		if c.Type == conditionType {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// A restart alone makes no condition of a check Unknown, unless the check's next run is overdue.
func TestConditionsOfChecksAcrossARestart(t *testing.T) {
	for interval, want := range map[time.Duration]string{time.Hour: "False DoorIsShut", 1: "Unknown SourceNotStarted"} {
		dir, set := t.TempDir(), rulesOf(t, doorRules)
		a, _ := restoredWith(t, dir, set)
		a.observe(resultEvent(plugin.Result{Check: "door", Status: plugin.OK}))
		a.kill(t)
		a, _ = restoredWith(t, dir, set)
		p := &parts{agent: a, monitors: &npd.Set{Checks: []*npd.CheckMonitor{{Rules: []npd.CheckRule{{Check: "door", InvokeInterval: interval}}}}}}
		p.keepChecks()
		if have := a.statusOf("DoorOpen"); have != want {
			t.Errorf("interval %v: %s, want %s", interval, have, want)
		}
	}
}

// A rule that a reload adds gets the latest results of checks, which may not run again for a day.
func TestNewRulesGetResultsOfChecks(t *testing.T) {
	a, _ := restoredWith(t, t.TempDir(), rulesOf(t, doorRules))
	ran := make(chan struct{}, 2)
	checks := plugin.Config{Name: "t", InvokeInterval: 24 * time.Hour, Spread: 1, Checks: []plugin.Check{
		{Name: "door", Path: testenv.Script(t, "exit 1")}, {Name: "window", Path: testenv.Script(t, "exit 0")},
	}}
	runner, err := plugin.New(checks, nil, func(r plugin.Result) {
		a.observe(resultEvent(r))
		ran <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &parts{agent: a, checks: []*plugin.Runner{runner}}
	a.patterns, a.lasting = func(*logpattern.Set) {}, p.reportChecks
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	<-ran
	<-ran
	a.replace(rulesOf(t, doorRules+`
- {name: bad, events: [check], when: 'event.check in ["door", "window"] && event.status == "problem"', groupBy: [event.check], clearWhen: event.status == "ok", condition: DoorBad, reason: DoorIsBad, message: m}
`))
	for conditionType, want := range map[string]string{"DoorOpen": "True DoorIsOpen", "DoorBad": "True DoorIsBad"} {
		if have := a.statusOf(conditionType); have != want {
			t.Errorf("condition %s is %s, want %s", conditionType, have, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
