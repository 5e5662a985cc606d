package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const oomRules = `
rules:
- {name: own-oom-kill, fault: own-oom, events: [oomkill], groupBy: [task.pid], reason: OOMKilling, message: "probe ${task.comm}"}
- {name: own-oom-kill-log, fault: own-oom, events: [log], logs: [kern], pattern: 'Killed process (?P<pid>\d+) \((?P<comm>[^)]*)\)', groupBy: [match.pid], reason: OOMKilling, message: "log ${match.comm}"}
`

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// An OOM kill that the probe and the log report is one problem, whichever comes
// first, with the evidence of both; one that only one of them reports is reported too.
func TestOneProblemOfProbeAndLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kern.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, logs := newLogAgent(t, rulesOf(t, oomRules), path)
	runLogs(t, a, logs)
	const kills = 23
	byProbe := func(i int) bool { return i%7 != 3 }
	byLog := func(i int) bool { return i%5 != 4 || !byProbe(i) }
	lines := uint64(0)
	var reported sync.WaitGroup
	for i := range kills {
		pid := uint32(100 + i)
		if byProbe(i) {
			reported.Go(func() {
				now := time.Now()
				a.observe(&event.Event{
					Kind: event.OOMKill, Time: now, BootTime: event.Duration(now.UnixNano()), Source: "bpf/oomkill",
					Task: &event.Task{PID: pid, TGID: pid, Comm: "victim"}, OOMKill: &event.OOMKillData{Scope: "memcg"},
				})
			})
		}
		if byLog(i) {
			appendTo(t, path, fmt.Sprintf("Memory cgroup out of memory: Killed process %d (victim) total-vm:1kB, anon-rss:1kB\n", pid))
			lines++
		}
	}
	reported.Wait()
	testenv.Until(t, "every line", time.Minute, func() bool { return logs.Stats()[0].Matched == lines })
	a.mu.Lock()
	defer a.mu.Unlock()
	problems := a.engine.Problems()
	if len(problems) != kills {
		t.Errorf("%d problems of %d kills", len(problems), kills)
	}
	for _, p := range problems {
		var pid int
		if _, err := fmt.Sscan(p.Group, &pid); err != nil {
			t.Fatal(err)
		}
		has := map[event.Kind]int{}
		for _, ev := range p.Evidence {
			has[ev.Kind]++
		}
		i := pid - 100
		want := map[event.Kind]int{}
		if byProbe(i) {
			want[event.OOMKill] = 1
		}
		if byLog(i) {
			want[event.Log] = 1
		}
		if p.Count != 1 || p.Fault != "own-oom" || fmt.Sprint(has) != fmt.Sprint(want) {
			t.Errorf("kill %d: count %d of %s, evidence %v, want %v", pid, p.Count, p.Fault, has, want)
		}
	}
}

// Replaced rules match logs from then on.
func TestReplacedRulesReachTheLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kern.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, logs := newLogAgent(t, rulesOf(t, "rules: [{name: r, events: [log], pattern: one, reason: R, message: m}]\n"), path)
	runLogs(t, a, logs)
	appendTo(t, path, "one\ntwo\n")
	testenv.Until(t, "two lines", time.Minute, func() bool { return logs.Stats()[0].Lines == 2 })
	a.replace(rulesOf(t, "rules: [{name: r, events: [log], pattern: two, reason: R, message: m}]\n"))
	appendTo(t, path, "two\none\ntwo\n")
	testenv.Until(t, "five lines", time.Minute, func() bool { return logs.Stats()[0].Lines == 5 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.engine.Problems(); logs.Stats()[0].Matched != 3 || len(p) != 1 || p[0].Count != 3 {
		t.Errorf("%d lines matched, problems %+v", logs.Stats()[0].Matched, p)
	}
}
