package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestMuteEditsTheFile: comments stay, expired mutes are removed, a mute of the same group is
// replaced, and an error leaves the file unchanged.
func TestMuteEditsTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mutes.yaml")
	const before = `# whom to ask: storage team
apiVersion: rules.kernosis.io/v1
mutes:
  - rule: disk-io-error # the old array
    until: 2999-01-01T00:00:00Z
    reason: known
  - {rule: oom-kill, until: 2020-01-01T00:00:00Z, reason: over}
`
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	step := func(want int, args ...string) (file, out string) {
		t.Helper()
		code, out := command(t, append([]string{"mute", "--state-dir", dir, "--mutes", path}, args...)...)
		if code != want {
			t.Errorf("%v: exit code %d, want %d: %s", args, code, want, out)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), out
	}
	for _, bad := range [][]string{
		{"oom-kill"}, {"oom-kill", "--for", "1h"}, {"oom-kil", "--for", "1h", "--reason", "r"}, {"oom-kill", "--until", "2020-01-01T00:00:00Z", "--reason", "r"},
		{"oom-kill", "--where", "device.name=sda", "--for", "1h", "--reason", "r"}, {"oom-kill", "--for", "1h", "--end"}, {"oom-kill", "--for", "1h", "--reason", strings.Repeat("r", 300)},
	} {
		if file, _ := step(output.ExitInput, bad...); file != before {
			t.Errorf("%v changed the file:\n%s", bad, file)
		}
	}
	if _, out := step(output.ExitOK); out != "disk-io-error until 2999-01-01T00:00:00Z: known\noom-kill ended 2020-01-01T00:00:00Z: over\n" {
		t.Errorf("listed as %s", out)
	}
	step(output.ExitFailed, "disk-stalled", "--end")
	file, _ := step(output.ExitOK, "oom-kill", "--until", "2999-01-02T00:00:00Z", "--reason", "it's: \"known\" # too\n")
	want := `# whom to ask: storage team
apiVersion: rules.kernosis.io/v1
mutes:
  - rule: disk-io-error # the old array
    until: 2999-01-01T00:00:00Z
    reason: known
  - rule: oom-kill
`
	if !strings.HasPrefix(file, want) || strings.Contains(file, "2020") || !strings.Contains(file, `2999-01-02T00:00:00Z`) {
		t.Errorf("the file is\n%s", file)
	}
	if file, _ := step(output.ExitOK, "disk-io-error", "--end"); strings.Contains(file, "disk-io-error") || !strings.Contains(file, "oom-kill") {
		t.Errorf("the file is\n%s", file)
	}
	if _, out := step(output.ExitOK); out != "oom-kill until 2999-01-02T00:00:00Z: it's: \"known\" # too\n" {
		t.Errorf("listed as %s", out)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if file, _ := step(output.ExitOK, "oom-kill", "--for", "1h", "--reason", "r"); !strings.HasPrefix(file, "apiVersion: ") {
		t.Errorf("the new file is\n%s", file)
	}

	// Mutes of rules that are not shipped are listed and ended without --rules-dir.
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(before, "disk-io-error", "own-rule")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, out := step(output.ExitOK); !strings.HasPrefix(out, "own-rule until 2999") {
		t.Errorf("listed as %s", out)
	}
	if file, _ := step(output.ExitOK, "own-rule", "--end"); strings.Contains(file, "own-rule") {
		t.Errorf("the file is\n%s", file)
	}
}

// Mutes that are added concurrently are all kept.
func TestMutesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), agent.MutesFile)
	const count = 20
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			f := muteFlags{stateDir: filepath.Dir(path), file: path, where: map[string]string{"device.name": fmt.Sprintf("sd%d", i)}, lasts: time.Hour, reason: "r"}
			if err := f.run("disk-io-error", time.Now(), io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, out := command(t, "mute", "--mutes", path); strings.Count(out, "disk-io-error") != count {
		t.Errorf("%d mutes are listed as\n%s", count, out)
	}
}

// The rules and the file are those of the running agent. Mutes of removed rules stay in the file, and
// don't prevent others from being added.
func TestMuteForAnAgent(t *testing.T) {
	a := startFakeAgent(t, []string{"--rules-dir", "rules", "--shipped-rules", "oomkill", "--mutes", "own-mutes.yaml"})
	write := func(name, text string) (path string) {
		t.Helper()
		path = filepath.Join(filepath.Dir(a.state), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("rules/own.yaml", "apiVersion: rules.kernosis.io/v1\nrules:\n- {name: own, events: [oomkill], reason: Own, message: own}\n")
	path := write("own-mutes.yaml", "apiVersion: rules.kernosis.io/v1\nmutes:\n- {rule: gone, until: 2999-01-01T00:00:00Z, reason: known}\n")
	for rule, want := range map[string]int{"own": output.ExitOK, "oom-kill": output.ExitOK, "disk-io-error": output.ExitInput, "gone": output.ExitInput} {
		if code, out := command(t, "mute", rule, "--state-dir", a.state, "--for", "1h", "--reason", "r"); code != want {
			t.Errorf("%s: exit code %d: %s", rule, code, out)
		}
	}
	list, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"gone", "own", "oom-kill"} {
		if !strings.Contains(string(list), "rule: "+rule) {
			t.Errorf("no mute of %s:\n%s", rule, list)
		}
	}
	if code, out := command(t, "mute", "gone", "--state-dir", a.state, "--end"); code != output.ExitOK {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, out := command(t, "mute", "--state-dir", a.state); strings.Contains(out, "gone") || !strings.Contains(out, "own until ") {
		t.Errorf("listed as %s", out)
	}
	// Flags take precedence.
	write("others/other.yaml", "apiVersion: rules.kernosis.io/v1\nrules:\n- {name: other, events: [oomkill], reason: Other, message: other}\n")
	file := filepath.Join(t.TempDir(), "mutes.yaml")
	code, out := command(t, "mute", "other", "--state-dir", a.state, "--rules-dir", filepath.Join(filepath.Dir(a.state), "others"), "--mutes", file, "--for", "1h", "--reason", "r")
	if _, err := os.Stat(file); code != output.ExitOK || err != nil {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}

// TestMutesFromAConfigMap: mutes follow the swap of a mounted ConfigMap; with an invalid file
// the previous ones stay in force, also across a restart.
func TestMutesFromAConfigMap(t *testing.T) {
	testenv.OnlyInTestAll(t)
	dir := t.TempDir()
	n := 0
	// As kubelet does: a new directory, and one rename of the link to it.
	swap := func(text string) {
		t.Helper()
		n++
		data := fmt.Sprintf("..2026_%d", n)
		if err := os.Mkdir(filepath.Join(dir, data), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, data, "mutes.yaml"), []byte("apiVersion: rules.kernosis.io/v1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Symlink(data, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	swap("mutes: []\n")
	if err := os.Symlink("..data/mutes.yaml", filepath.Join(dir, "mutes.yaml")); err != nil {
		t.Fatal(err)
	}
	p := newAgent(t, "--mutes", filepath.Join(dir, "mutes.yaml"))
	if os.Geteuid() != 0 {
		p.Args = append(p.Args, "--pin-root", "")
	}
	p.Start()
	watching := func(ns int) {
		t.Helper()
		p.Wait("start", 30*time.Second, func(entries []journal.Entry) bool {
			sources := 0
			for _, e := range entries {
				if e.Event != nil && e.Event.Kind == event.Source {
					sources++
				}
			}
			return sources >= ns
		})
	}
	watching(1)
	swap("mutes:\n- {rule: oom-kill, until: 2999-01-01T00:00:00Z, reason: known}\n")
	waitMute(t, p, 1, false)
	swap("mutes:\n- {rule: oom-kill, until: 2999-01-01, reason: known}\n")
	if text, ok := p.Log.Wait(20*time.Second, func(s string) bool { return strings.Contains(s, "the ones in force stay") }); !ok {
		t.Fatalf("the mistake is not reported:\n%s", text)
	}
	p.Kill()
	p.Start()
	before := len(p.Entries())
	p.Wait("second start", 30*time.Second, func(entries []journal.Entry) bool { return len(entries) > before+1 })
	swap("mutes: []\n") // the mute was in force until now
	waitMute(t, p, 1, true)
	p.Stop()
	if code, out := command(t, "replay", "--compare", p.State); code != output.ExitOK {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
