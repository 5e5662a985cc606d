package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testall"
)

// The committed alerts are those of the shipped rules, and no finding of lint.
func TestShippedAlerts(t *testing.T) {
	const path = "../../deploy/alerts/kernosis.rules.yaml"
	code, out := command(t, "rules", "alerts")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code != exitOK || out != string(want) {
		t.Errorf("exit code %d; %s is old: make generate-deploy", code, path)
	}
	if code, out := command(t, "lint", "--alerts", path); code != exitOK || strings.Contains(out, path) {
		t.Errorf("lint finds mistakes, exit code %d:\n%s", code, out)
	}
}

// Rules of a folder, and of node-problem-detector's files, have alerts as well.
func TestAlertsOfOtherRules(t *testing.T) {
	testall.Only(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("rules/x.yaml", "apiVersion: rules.kernosis.io/v1\nconditions:\n  DoorOpen: {healthyReason: DoorIsShut, healthyMessage: shut}\nrules:\n- {name: x, events: [oomkill], condition: DoorOpen, reason: DoorIsOpen, message: m, latched: true}\n")
	monitor := file("monitor.json", `{"plugin": "kmsg", "logPath": "/dev/kmsg", "lookback": "5m", "bufferSize": 10, "source": "m",
  "conditions": [{"type": "KubeletUnhealthy", "reason": "KubeletIsHealthy", "message": "fine"}],
  "rules": [{"type": "permanent", "condition": "KubeletUnhealthy", "reason": "KubeletFell", "pattern": "kubelet fell"}]}`)
	code, out := command(t, "rules", "alerts", "--rules-dir", filepath.Join(dir, "rules"), "--config.system-log-monitor", monitor, "--runbook-base", "https://wiki.example/")
	for _, want := range []string{"alert: DoorOpen\n", `type="KubeletUnhealthy", reason=~"KubeletFell"`, "https://wiki.example/problems/OOMKilling.md"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s", want)
		}
	}
	if code != exitOK || strings.Contains(out, "ServiceUnhealthy.md\n      severity: critical\n  - alert: KubeletUnhealthy") {
		t.Errorf("exit code %d", code)
	}
	for _, args := range [][]string{{"--rules-dir", filepath.Join(dir, "none")}, {"--shipped-rules", "no-such"}, {"x"}} {
		if code, out := command(t, append([]string{"rules", "alerts"}, args...)...); code != exitInput || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
}

// What runbooks say to run only looks. That it is there: TestCommandsOfDocs.
func TestRunbookCommands(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(repository, "docs/runbooks/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	kubectl := []string{"get", "describe", "logs", "top", "exec", "auth", "rollout"}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"**What it means.** ", "**Impact.** ", "**How to look.**\n\n```sh\n", "\n```\n\n**What to do.**"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s: no %q", path, part)
			}
		}
		for _, s := range readDocPage(t, "docs/runbooks/"+filepath.Base(path)).blocks[0].statements() {
			words := strings.Fields(s.text)
			if words[0] == "kubectl" && words[1] == "-n" {
				words = words[2:]
			}
			if words[0] != "kernosis" && !slices.Contains(kubectl, words[1]) {
				t.Errorf("%s:%d: %s", path, s.line, s.text)
			}
		}
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(string(text), -1) {
			agent, controller := newAgentCommand(), newController()
			if agent.Flags().Lookup(flag[1]) == nil && controller.Flags().Lookup(flag[1]) == nil {
				t.Errorf("%s: no program has the flag --%s", path, flag[1])
			}
		}
	}
}
