package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	seenRule = `
- {name: seen-read-only, events: [mount.readonly], groupBy: [device.name], reason: Seen, message: "${device.name}", clearAfter: 1s}
`
	lastingRules = `
- {name: lasts-read-only, events: [mount.readonly], groupBy: [device.name], condition: LastsReadOnly, reason: Lasts, message: "${device.name}", clearWhen: event.kind == "mount.writable"}
- {name: lasts-stalled, events: [diskstall], groupBy: [device.name], condition: LastsStalled, reason: Lasts, message: "${device.name}", clearWhen: event.kind == "diskstall.resumed"}
- {name: lasts-hung, events: [hungtask], when: task.comm == "dd", groupBy: [task.id], condition: LastsHung, reason: Lasts, message: "${task.comm}", clearWhen: event.kind == "hungtask.resumed", for: 2s}
`
)

func rulesText(conditions []string, rules string) string {
	var text strings.Builder
	text.WriteString("apiVersion: rules.kernosis.io/v1\nconditions:\n")
	for _, c := range conditions {
		fmt.Fprintf(&text, "  %s: {healthyReason: NothingLasts, healthyMessage: nothing lasts}\n", c)
	}
	return text.String() + "rules:" + rules
}

// A rule added by a reload reports lasting states, which were reported once before. Other rules do not
// report them again, and a restart changes nothing.
func TestNewRulesReportWhatLasts(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conditions := []string{"LastsReadOnly", "LastsStalled", "LastsHung"}
	write(rulesText(conditions, seenRule))
	shutDown, lower := disklab.NewXFS(t), disklab.NewExt4(t, 32<<20)
	upper := lower.Upper()
	p := newAgent(t, "--rules-dir", dir, "--hung-task-after", "1s")
	p.Start()
	p.WaitSources(0)

	shutDown.ShutDown()
	thaw := lower.Freeze()
	dd := exec.Command("dd", "if=/dev/zero", "of="+upper, "bs=4096", "count=1", "oflag=direct", "conv=notrunc", "status=none")
	if err := dd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- dd.Wait() }()
	of := func(name string) func(*problem.Problem) bool {
		return func(pr *problem.Problem) bool { return strings.Contains(pr.Message, name) }
	}
	p.Wait("what lasts", time.Minute, func(entries []journal.Entry) bool {
		stalled := slices.ContainsFunc(agenttest.Events(entries, event.DiskStalled), func(ev *event.Event) bool {
			return ev.Device.Name == filepath.Base(upper)
		})
		return stalled && slices.Contains(agenttest.States(entries, "seen-read-only", of(shutDown.Name)), problem.Resolved) &&
			len(agenttest.States(entries, "readonly-filesystem", of(shutDown.Name))) > 0 && len(agenttest.States(entries, "task-hung", of("dd["))) > 0
	})
	before := len(p.Entries())
	write(rulesText(conditions, seenRule+lastingRules))
	lasting := map[string]string{"lasts-read-only": shutDown.Name, "lasts-stalled": filepath.Base(upper), "lasts-hung": "dd"}
	p.Wait("the new rules", 20*time.Second, func(entries []journal.Entry) bool {
		for rule, name := range lasting {
			if len(agenttest.States(entries, rule, of(name))) == 0 {
				return false
			}
		}
		return true
	})
	for _, rule := range []string{"seen-read-only", "readonly-filesystem", "task-hung", "disk-stalled"} {
		// disk-stalled may have been pending until now.
		if again := agenttest.States(p.Entries()[before:], rule, of("")); len(again) > 0 && rule != "disk-stalled" || len(again) > 1 {
			t.Errorf("rule %s, which is as it was: %v", rule, again)
		}
	}

	p.Kill()
	p.Start()
	p.WaitSources(before)
	thaw()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.Wait("the end of the hang", 20*time.Second, func(entries []journal.Entry) bool {
		return slices.Contains(agenttest.States(entries, "lasts-hung", of("dd")), problem.Resolved)
	})
	for rule, name := range lasting {
		want := []problem.State{problem.Firing}
		if rule == "lasts-hung" {
			want = append(want, problem.Resolved)
		}
		if got := agenttest.States(p.Entries(), rule, of(name)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", rule, got, want)
		}
	}
}
