package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMuteEditsTheFile: comments stay, mutes that are over go, one of the same
// groups is replaced, and a mistake leaves the file as it was.
func TestMuteEditsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mutes.yaml")
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
		code, out := command(t, append([]string{"mute", "--mutes", path}, args...)...)
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
		if file, _ := step(exitInput, bad...); file != before {
			t.Errorf("%v changed the file:\n%s", bad, file)
		}
	}
	if _, out := step(exitOK); out != "disk-io-error until 2999-01-01T00:00:00Z: known\noom-kill over since 2020-01-01T00:00:00Z: over\n" {
		t.Errorf("listed as %s", out)
	}
	step(exitFailed, "disk-stalled", "--end")
	file, _ := step(exitOK, "oom-kill", "--until", "2999-01-02T00:00:00Z", "--reason", "it's: \"known\" # too\n")
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
	if file, _ := step(exitOK, "disk-io-error", "--end"); strings.Contains(file, "disk-io-error") || !strings.Contains(file, "oom-kill") {
		t.Errorf("the file is\n%s", file)
	}
	if _, out := step(exitOK); out != "oom-kill until 2999-01-02T00:00:00Z: it's: \"known\" # too\n" {
		t.Errorf("listed as %s", out)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if file, _ := step(exitOK, "oom-kill", "--for", "1h", "--reason", "r"); !strings.HasPrefix(file, "apiVersion: ") {
		t.Errorf("the new file is\n%s", file)
	}
}
