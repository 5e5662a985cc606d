package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// rotatedLog is a log that is written to and rotated by rename.
type rotatedLog struct {
	t    *testing.T
	path string
	old  int
}

func (l *rotatedLog) add(text string) {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		l.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *rotatedLog) rotate() {
	l.t.Helper()
	for n := l.old; n >= 0; n-- {
		from := fmt.Sprintf("%s.%d", l.path, n)
		if n == 0 {
			from = l.path
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", l.path, n+1)); err != nil {
			l.t.Fatal(err)
		}
	}
	l.old++
	l.add("")
}

// waitLog waits until the agent has reported the state of a log, in the entries from the
// n-th on.
func waitLog(p *agenttest.Agent, n int, stem string, up bool) {
	p.Wait(stem, 60*time.Second, func(entries []journal.Entry) bool {
		for _, e := range entries[min(n, len(entries)):] {
			if e.Event != nil && e.Event.SourceUp != nil && e.Event.SourceUp.Stem == stem && e.Event.SourceUp.Up == up {
				return true
			}
		}
		return false
	})
}

func writeRules(t testing.TB, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte("apiVersion: rules.kernosis.io/v1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// journaled returns the entries of an agent's journal. The agent's output may lack the
// last line before a kill.
func journaled(t *testing.T, p *agenttest.Agent) (entries []journal.Entry) {
	t.Helper()
	if _, err := journal.Read(filepath.Join(p.State, agent.JournalDir), 0, func(e journal.Entry) error {
		entries = append(entries, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return entries
}

// Each of 211 faults in a log is reported once, and 211 equal lines are counted as 211, although
// meanwhile the log is rotated and the agent is killed and restarted.
func TestLogAcrossKillsAndRotations(t *testing.T) {
	const faults = 211
	rules := writeRules(t, `
rules:
- {name: numbered, events: [log], logs: [app], pattern: 'fault (?P<n>\d+)$', groupBy: [match.n], reason: Numbered, message: "${match.n}"}
- {name: equal, events: [log], logs: [app], pattern: 'the same again', reason: Equal, message: m}
- {name: pair, events: [log], logs: [app], pattern: 'pair begins\n.*fault (?P<n>\d+)$', groupBy: [match.n], reason: Pair, message: "${match.n}"}
`)
	l := &rotatedLog{t: t, path: filepath.Join(t.TempDir(), "app.log")}
	l.add("fault 999999\n") // from before the first start
	p := newAgent(t, "--rules-dir", rules, "--log", "app=file:"+l.path)
	p.Start()
	waitLog(p, 0, "log/app", true)
	running := true
	for i := range faults {
		switch i % 50 {
		case 17:
			// At once, so that the agent may be anywhere in processing the previous fault.
			p.Kill()
			running = false
		case 33:
			p.Start()
			running = true
		}
		if i%30 == 20 {
			l.rotate()
		}
		l.add(fmt.Sprintf("nothing\nthe same again\npair begins\nfault %d\n", i))
	}
	if !running {
		t.Fatal("the agent is not running at the end")
	}
	last := fmt.Sprintf("fault %d", faults-1)
	p.Wait("last fault", 60*time.Second, func(entries []journal.Entry) bool {
		for _, ev := range agenttest.Events(entries, event.Log) {
			if strings.HasSuffix(ev.Log.Text, last) {
				return true
			}
		}
		return false
	})
	p.Stop()

	reported := map[string]map[string]int{}
	equal := uint64(0)
	for _, e := range journaled(t, p) {
		if e.Event != nil && e.Event.Lost != nil {
			t.Errorf("lost: %+v", *e.Event.Lost)
		}
		for _, tr := range e.Transitions {
			if tr.Problem == nil || tr.Problem.State != problem.Firing {
				continue
			}
			if reported[tr.Problem.Rule] == nil {
				reported[tr.Problem.Rule] = map[string]int{}
			}
			reported[tr.Problem.Rule][tr.Problem.Group]++
			if tr.Problem.Rule == "equal" {
				equal = max(equal, tr.Problem.Count)
			}
		}
	}
	for _, rule := range []string{"numbered", "pair"} {
		if len(reported[rule]) != faults {
			t.Errorf("%d of %d faults reported by rule %s", len(reported[rule]), faults, rule)
		}
		for n, times := range reported[rule] {
			if times != 1 {
				t.Errorf("fault %s reported %d times by rule %s", n, times, rule)
			}
		}
	}
	if reported["equal"][""] != faults || equal != faults {
		t.Errorf("%d equal lines reported, the last counts %d; want %d", reported["equal"][""], equal, faults)
	}
}

// A condition whose log is not configured is Unknown and says so; a missing log comes
// up when it is created.
func TestLogsThatAreNotThere(t *testing.T) {
	rules := writeRules(t, `
conditions:
  OfKmsg: {healthyReason: Well, healthyMessage: well}
  OfApp: {healthyReason: Well, healthyMessage: well}
rules:
- {name: kmsg, events: [log], logs: [kmsg], pattern: oops, condition: OfKmsg, reason: R, message: m, latched: true}
- {name: app, events: [log], logs: [app], pattern: oops, condition: OfApp, reason: R, message: m, latched: true}
`)
	l := &rotatedLog{t: t, path: filepath.Join(t.TempDir(), "app.log")}
	p := newAgent(t, "--rules-dir", rules, "--log", "app=file:"+l.path, "--listen", "127.0.0.1:0")
	p.Start()
	state := func(want string) {
		t.Helper()
		p.Wait(want, 60*time.Second, func(entries []journal.Entry) bool {
			for _, e := range entries {
				for _, tr := range e.Transitions {
					if c := tr.Condition; c != nil && strings.Contains(fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message), want) {
						return true
					}
				}
			}
			return false
		})
	}
	state("OfApp=Unknown SourceUnavailable: log/app: open " + l.path)
	state("OfKmsg=Unknown SourceUnavailable: log/kmsg: this log is not configured")
	l.add("quiet\noops\nquiet\n")
	state("OfApp=True R: m") // all lines of a newly created file are new
	waitLog(p, 0, "log/app", true)
	_, body := get(t, p.Log.URL(t)+"/metrics")
	for _, want := range []string{
		`kernosis_log_lines_total{log="app"} 3`, `kernosis_log_lines_matched_total{log="app"} 1`, `kernosis_log_bytes_total{log="app"} 14`,
		`kernosis_source_up{stem="log/app"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(body, `stem="log"`) {
		t.Error("the logs that are not configured count as a source that is down")
	}
}

const oomFaultRules = `
rules:
- {name: own-oom-kill, fault: own-oom, events: [oomkill], groupBy: [task.pid], reason: OOMKilling, message: "probe ${task.comm}"}
- {name: own-oom-kill-log, fault: own-oom, events: [log], logs: [kmsg], pattern: 'Killed process (?P<pid>\d+) \((?P<comm>[^)]*)\)', groupBy: [match.pid], reason: OOMKilling, message: "log ${match.comm}"}
`

// A real kill that both the BPF program and the kernel's log report is one problem.
func TestOneProblemOfRealKills(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	if f, err := os.Open("/dev/kmsg"); err != nil {
		t.Skipf("the kernel's log can't be read here: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(2*time.Minute))
	defer cancel()
	p := newAgent(t, "--rules-dir", writeRules(t, oomFaultRules))
	p.Start()
	p.WaitSources(0)
	waitLog(p, 0, "log/kmsg", true)
	oom := &inject.OOM{StateDir: t.TempDir()}
	if err := oom.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer oom.Close()
	ours := map[string]bool{}
	for range 3 {
		pid, err := oom.Kill(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ours[strconv.Itoa(pid)] = true
	}
	reporters := func(entries []journal.Entry) (probe, log int) {
		for _, e := range entries {
			switch ev := e.Event; {
			case ev == nil:
			case ev.Kind == event.OOMKill && ours[strconv.FormatUint(uint64(ev.Task.PID), 10)]:
				probe++
			case ev.Kind == event.Log && strings.Contains(ev.Log.Text, "Killed process"):
				for pid := range ours {
					if strings.Contains(ev.Log.Text, "Killed process "+pid+" ") {
						log++
					}
				}
			}
		}
		return probe, log
	}
	entries := p.Wait("both to tell of each", 20*time.Second, func(entries []journal.Entry) bool {
		probe, log := reporters(entries)
		return probe == len(ours) && log == len(ours)
	})
	fired := map[string]int{}
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if pr := tr.Problem; pr != nil && pr.Fault == "own-oom" && pr.State == problem.Firing && ours[pr.Group] {
				if fired[pr.Group]++; pr.Count != 1 {
					t.Errorf("kill of %s counts %d times", pr.Group, pr.Count)
				}
			}
		}
	}
	if len(fired) != len(ours) {
		t.Errorf("%d of %d kills reported: %v", len(fired), len(ours), fired)
	}
	for pid, n := range fired {
		if n != 1 {
			t.Errorf("kill of %s reported %d times", pid, n)
		}
	}
}
