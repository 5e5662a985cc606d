package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplayNPD: one command tries node-problem-detector's patterns on a log, and says which settings
// of a monitor it ignores.
func TestReplayNPD(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	monitor := write("docker-monitor.json", `{"plugin": "journald", "pluginConfig": {"source": "dockerd"}, "logPath": "/var/log/journal", "lookback": "5m",
		"bufferSize": 10, "source": "docker-monitor", "conditions": [{"type": "Corrupt", "reason": "Fine", "message": "fine"}],
		"rules": [{"type": "permanent", "condition": "Corrupt", "reason": "CorruptImage", "pattern": "Error trying v2 registry: .*"}]}`)
	checks := write("checks.json", `{"plugin": "custom", "pluginConfig": {}, "source": "c", "rules": [{"type": "temporary", "reason": "Bad", "path": "/bin/true"}]}`)
	log := write("messages", "Nov 23 22:31:00 node dockerd[1]: Error trying v2 registry: failed\n")
	replayed := func(args ...string) (string, error) {
		var out strings.Builder
		cmd := newReplay()
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	if out, err := replayed(log, "--npd", monitor); err != nil || !strings.Contains(out, "Corrupt=True CorruptImage: Error trying v2 registry: failed") ||
		!strings.Contains(out, "docker-monitor.json: lookback: ignored") {
		t.Errorf("%v\n%s", err, out)
	}
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "own.yaml"), []byte("apiVersion: rules.kernosis.io/v1\nrules:\n"+
		"- {name: npd-docker-monitor-corruptimage, extends: npd-docker-monitor-corruptimage, message: own}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := replayed(log, "--npd", monitor, "--rules", own); err != nil || !strings.Contains(out, "Corrupt=True CorruptImage: own") {
		t.Errorf("with a rule that extends the monitor's: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{log, "--npd", checks}, "custom-plugin-monitor"},
		{[]string{log, "--npd", log}, "messages:1"},
		{[]string{log, "--npd", monitor, "--log", "x"}, "--log can't be used with --npd"},
		{[]string{monitor}, "journalctl -o export"},
		{[]string{log, "--format", "text"}, "journal-export, journal-json"},
	} {
		if _, err := replayed(tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
}
