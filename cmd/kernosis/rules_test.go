package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
)

// Tests fully cover every shipped rule.
func TestRulesTestOfTheShipped(t *testing.T) {
	for _, format := range []string{"text", "tap", "junit"} {
		if code, out := command(t, "rules", "test", "--strict", "-o", format); code != output.ExitOK || out == "" {
			t.Errorf("%s: exit code %d\n%s", format, code, out)
		}
	}
}

func TestRulesTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("apiVersion: rules.kernosis.io/v1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := filepath.Join(dir, "a")
	write("a/x.yaml", "rules:\n- {name: x, events: [oomkill], reason: R, message: m}\n")
	write("a/y.yaml", "rules:\n- {name: y, events: [diskio], reason: R, message: m}\n")
	good := write("a/x_test.yaml", "tests:\n- {name: fires, rules: [x], events: [{at: 0s, event: {kind: oomkill}}, {at: 10m, event: {kind: oomkill}}], expect: [{at: 10m, problems: [{rule: x}]}]}\n")
	bad := write("b/z_test.yaml", "tests:\n- name: fails\n  expect:\n  - {at: 0s, transitions: {oom-kill: 1}}\n")
	mistake := write("c/z_test.yaml", "tests:\n- {name: m}\n")
	for _, c := range []struct {
		args []string
		code int
		out  []string
		not  string
	}{
		{[]string{good}, output.ExitOK, []string{"1 tests, 0 failed\n"}, "rule y"},
		{[]string{"--strict", good}, output.ExitOK, []string{"1 tests, 0 failed\n"}, "rule y"},
		{[]string{a}, output.ExitOK, []string{a + "/y.yaml:3: no test of rule y covers: fires, clears, flaps\n1 tests, 0 failed, 1 rules not fully tested\n"}, "rule x"},
		{[]string{"--strict", a}, output.ExitFailed, []string{"no test of rule y covers"}, "oom-kill"},
		{[]string{a, good, bad, bad}, output.ExitFailed, []string{bad + ":5: fails: at 0s: oom-kill fired 0 times, want 1\n", "2 tests, 1 failed"}, ""},
		{[]string{"-o", "tap", a, bad}, output.ExitFailed, []string{"1..2\nok 1 - " + good + ":3: fires\nnot ok 2 - " + bad + ":3: fails\n"}, ""},
		{[]string{"-o", "junit", a, bad}, output.ExitFailed, []string{`<testsuites tests="3" failures="1">`, `file="` + bad + `" line="3"`}, ""},
		{[]string{a, mistake}, output.ExitInput, nil, "tests"},
		{[]string{filepath.Join(a, "x.yaml")}, output.ExitInput, nil, ""},
		{[]string{filepath.Join(dir, "absent")}, output.ExitInput, nil, ""},
		{[]string{"-o", "xml", a}, output.ExitInput, nil, ""},
	} {
		code, out := command(t, append([]string{"rules", "test"}, c.args...)...)
		if code != c.code || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.out {
			if !strings.Contains(out, want) {
				t.Errorf("%v: %q is not in\n%s", c.args, want, out)
			}
		}
	}
}

// In the folder itself ("."), names of shipped files look like names of its own files.
func TestRulesTestHere(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("x.yaml", []byte("apiVersion: rules.kernosis.io/v1\nrules:\n- {name: x, events: [oomkill], reason: R, message: m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, "rules", "test", "--strict", "."); code != output.ExitFailed || strings.Count(out, "no test of rule") != 1 || !strings.Contains(out, "rule x") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestRulesDocsAndSchema(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "docs")
	if code, _ := command(t, "rules", "docs", "--dir", dir); code != output.ExitOK {
		t.Fatalf("exit code %d", code)
	}
	page, err := os.ReadFile(filepath.Join(dir, "oom-kill.md"))
	if err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, "rules", "docs", "oom-kill"); code != output.ExitOK || out != string(page) || !strings.HasPrefix(out, "# oom-kill\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, args := range [][]string{{"docs"}, {"docs", "no-such"}, {"schema", "x"}} {
		if code, out := command(t, append([]string{"rules"}, args...)...); code != output.ExitInput || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
	for _, name := range []string{"", "rules", "tests", "mutes"} {
		args := []string{"rules", "schema"}
		if name != "" {
			args = append(args, name)
		}
		var doc map[string]any
		if code, out := command(t, args...); code != output.ExitOK || json.Unmarshal([]byte(out), &doc) != nil || doc["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%v: exit code %d:\n%s", args, code, out)
		}
	}
}

// The commands say what rules on pod labels depend on; replayed and tested events have labels of
// their own.
func TestRulesOnPodLabelsInTheCommands(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"own.yaml": `apiVersion: rules.kernosis.io/v1
rules:
- {name: by-label, events: [oomkill], when: 'pod.labels.team == "db"', reason: R, message: m}
`,
		"own_test.yaml": `apiVersion: rules.kernosis.io/v1
tests:
- name: labels
  rules: [by-label]
  events:
  - {at: 0s, event: {kind: oomkill, podLabels: {team: db}}}
  - {at: 1s, event: {kind: oomkill, podLabels: {team: web}}}
  - {at: 2s, event: {kind: oomkill}}
  expect:
  - {at: 3s, problems: [{rule: by-label, count: 1}]}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := command(t, "rules", "check", dir); code != output.ExitOK || !strings.Contains(out, "pod.labels is empty if the agent can't list the node's pods; rules that read it: by-label\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out := command(t, "rules", "check"); code != output.ExitOK || strings.Contains(out, "pod.labels") {
		t.Errorf("of the shipped rules: exit code %d\n%s", code, out)
	}
	if code, out := command(t, "rules", "test", dir); code != output.ExitOK || !strings.Contains(out, "1 tests, 0 failed") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
