package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every shipped rule is shown in full by its tests.
func TestRulesTestOfTheShipped(t *testing.T) {
	for _, output := range []string{"text", "tap", "junit"} {
		if code, out := command(t, "rules", "test", "--strict", "-o", output); code != exitOK || out == "" {
			t.Errorf("%s: exit code %d\n%s", output, code, out)
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
		{[]string{good}, exitOK, []string{"1 tests, 0 failed\n"}, "rule y"},
		{[]string{"--strict", good}, exitOK, []string{"1 tests, 0 failed\n"}, "rule y"},
		{[]string{a}, exitOK, []string{a + "/y.yaml:3: no test shows of rule y: fires, clears, flaps\n1 tests, 0 failed, 1 rules not shown in full\n"}, "rule x"},
		{[]string{"--strict", a}, exitFailed, []string{"no test shows of rule y"}, "oom-kill"},
		{[]string{a, good, bad, bad}, exitFailed, []string{bad + ":5: fails: at 0s: oom-kill fired 0 times, want 1\n", "2 tests, 1 failed"}, ""},
		{[]string{"-o", "tap", a, bad}, exitFailed, []string{"1..2\nok 1 - " + good + ":3: fires\nnot ok 2 - " + bad + ":3: fails\n"}, ""},
		{[]string{"-o", "junit", a, bad}, exitFailed, []string{`<testsuites tests="3" failures="1">`, `file="` + bad + `" line="3"`}, ""},
		{[]string{a, mistake}, exitInput, nil, "tests"},
		{[]string{filepath.Join(a, "x.yaml")}, exitInput, nil, ""},
		{[]string{filepath.Join(dir, "absent")}, exitInput, nil, ""},
		{[]string{"-o", "xml", a}, exitInput, nil, ""},
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

// In the folder itself the names of the shipped files look like those of its own.
func TestRulesTestHere(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("x.yaml", []byte("apiVersion: rules.kernosis.io/v1\nrules:\n- {name: x, events: [oomkill], reason: R, message: m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, "rules", "test", "--strict", "."); code != exitFailed || strings.Count(out, "no test shows") != 1 || !strings.Contains(out, "rule x") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestRulesDocsAndSchema(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "docs")
	if code, _ := command(t, "rules", "docs", "--dir", dir); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	page, err := os.ReadFile(filepath.Join(dir, "oom-kill.md"))
	if err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, "rules", "docs", "oom-kill"); code != exitOK || out != string(page) || !strings.HasPrefix(out, "# oom-kill\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, args := range [][]string{{"docs"}, {"docs", "no-such"}, {"schema", "x"}} {
		if code, out := command(t, append([]string{"rules"}, args...)...); code != exitInput || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
	for _, name := range []string{"", "rules", "tests", "mutes"} {
		args := []string{"rules", "schema"}
		if name != "" {
			args = append(args, name)
		}
		var doc map[string]any
		if code, out := command(t, args...); code != exitOK || json.Unmarshal([]byte(out), &doc) != nil || doc["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%v: exit code %d:\n%s", args, code, out)
		}
	}
}
