package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/deploy/monitoring"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The committed alerts are those of the shipped rules, and lint has no findings on them.
func TestShippedAlerts(t *testing.T) {
	const path = "../../deploy/chart/kernosis/files/alerts.yaml"
	code, out := command(t, "rules", "alerts", "--dashboard-base", monitoring.DashboardMark)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code != output.ExitOK || out != string(want) {
		t.Errorf("exit code %d; %s is old: make generate-deploy", code, path)
	}
	if code, out := command(t, "lint", "--alerts", path); code != output.ExitOK || strings.Contains(out, path) {
		t.Errorf("lint finds mistakes, exit code %d:\n%s", code, out)
	}
}

// Without a controller there are no alerts on it, of which one would fire for good.
func TestAlertsWithoutAController(t *testing.T) {
	code, out := command(t, "rules", "alerts", "--controller-job", "")
	if code != output.ExitOK || strings.Contains(out, "KernosisController") || !strings.Contains(out, "alert: KernosisAgentDown\n") {
		t.Errorf("exit code %d, alerts on the controller: %v", code, strings.Contains(out, "KernosisController"))
	}
}

// Rules of a folder, and of node-problem-detector's files, get alerts too.
func TestAlertsOfOtherRules(t *testing.T) {
	testenv.OnlyInTestAll(t)
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
	if code != output.ExitOK || strings.Contains(out, "ServiceUnhealthy.md\n      severity: critical\n  - alert: KubeletUnhealthy") {
		t.Errorf("exit code %d", code)
	}
	for _, args := range [][]string{{"--rules-dir", filepath.Join(dir, "none")}, {"--shipped-rules", "no-such"}, {"x"}} {
		if code, out := command(t, append([]string{"rules", "alerts"}, args...)...); code != output.ExitInput || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
}
