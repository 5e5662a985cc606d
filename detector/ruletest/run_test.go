package ruletest_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/ruletest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestReports runs the test files of each archive against its rules. The member
// "report" contains the expected mistakes or failures.
func TestReports(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no archives", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := fstest.MapFS{}
			golden := -1
			for i, f := range archive.Files {
				if f.Name == "report" {
					golden = i
				} else {
					files[f.Name] = &fstest.MapFile{Data: f.Data}
				}
			}
			set, err := detector.Load(files)
			if err != nil {
				t.Fatal(err)
			}
			tests, err := ruletest.ReadFiles(files)
			if err != nil {
				t.Fatal(err)
			}
			var have bytes.Buffer
			var results ruletest.Results
			if err := results.Run(set, func(*detector.Rule) bool { return false }, tests...); err != nil {
				fmt.Fprintln(&have, err)
			} else if err := results.WriteText(&have); err != nil {
				t.Fatal(err)
			}
			if *update {
				if golden < 0 {
					golden = len(archive.Files)
					archive.Files = append(archive.Files, txtar.File{Name: "report"})
				}
				archive.Files[golden].Data = have.Bytes()
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if golden < 0 || !bytes.Equal(have.Bytes(), archive.Files[golden].Data) {
				t.Errorf("have\n%s\nwant\n%s", &have, archive.Files[golden].Data)
			}
		})
	}
}

func TestCoverage(t *testing.T) {
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(`apiVersion: rules.kernosis.io/v1
rules:
- {name: shown, events: [oomkill], when: event.scope == "memcg", reason: R, message: m}
- {name: never, events: [diskio], when: event.op == "write", reason: R, message: m}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	wantGaps(t, set, map[string][]string{"shown": {"flaps"}, "never": {"fires", "does not fire", "clears", "flaps"}}, `apiVersion: rules.kernosis.io/v1
tests:
- name: a
  events: [{at: 0s, event: {kind: oomkill, oomKill: {scope: memcg}}}]
  expect: [{at: 1h, transitions: {shown: 1}}]
- name: b
  events: [{at: 0s, event: {kind: oomkill, oomKill: {scope: global}}}]
  expect: [{at: 1h, transitions: {shown: 0}}]
`)
}

// wantGaps runs tests that must pass and compares their gaps, by rule.
func wantGaps(t *testing.T, set *detector.RuleSet, want map[string][]string, tests string) {
	t.Helper()
	var results ruletest.Results
	err := results.Run(set, func(*detector.Rule) bool { return true }, ruletest.File{Name: "t", Data: []byte(tests)})
	if err != nil || results.Failed() != 0 {
		t.Fatal(err, results)
	}
	have := make(map[string][]string)
	for _, g := range results.Gaps {
		have[g.Rule] = g.Missing
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("gaps (-want +have):\n%s", diff)
	}
}

// TestLogCoverage checks that tests can contain log lines, and that a pattern that never
// matched is a gap.
func TestLogCoverage(t *testing.T) {
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(`apiVersion: rules.kernosis.io/v1
rules:
- {name: nfs, events: [log], pattern: 'server (?P<s>\S+) silent', clearPattern: 'server (?P<s>\S+) OK', groupBy: [match.s], reason: R, message: "${match.s}"}
- {name: half, events: [log], pattern: 'server \S+ silent', clearPattern: 'never', reason: R, message: m}
- {name: never, events: [log], pattern: 'never', reason: R, message: m}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	wantGaps(t, set, map[string][]string{
		"half":  {"clears", "flaps", "clearPattern matches"},
		"never": {"fires", "clears", "flaps", "pattern matches"},
	}, `apiVersion: rules.kernosis.io/v1
templates:
  line: {kind: log, log: {name: kmsg, origin: kernel}}
tests:
- name: a
  events:
  - {at: 0s, like: line, event: {log: {text: server a silent}}}
  - {at: 1s, like: line, event: {log: {text: "before\nserver a OK"}}}
  - {at: 1s, restart: true}
  - {at: 2s, like: line, event: {log: {text: server a silent}}, repeat: 2, every: 1s}
  expect:
  - {at: 0s, problems: [{rule: nfs, group: a, count: 1, message: a, subject: kernel}, {rule: half}]}
  - {at: 1s, problems: [{rule: half}]}
  - {at: 3s, problems: [{rule: nfs, group: a, count: 2}, {rule: half, count: 3}]}
- name: b
  events: [{at: 0s, like: line, event: {log: {text: server a OK}}}]
  expect: [{at: 1h, problems: []}]
`)
}

// FuzzRun: no test file makes the runner panic.
func FuzzRun(f *testing.F) {
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: []byte(`apiVersion: rules.kernosis.io/v1
rules:
- {name: shown, events: [oomkill], reason: R, message: m}
`)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`apiVersion: rules.kernosis.io/v1
templates: {k: {kind: oomkill}}
tests:
- name: a
  rules: [shown]
  events: [{at: 0s, like: k, repeat: 2, every: 1s}, {at: 5s, restart: true}]
  expect: [{at: 1h, problems: [{rule: shown, count: 1}], transitions: {shown: 1}}]
`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte("repeat")) && len(data) > 1000 {
			t.Skip("long runs are no news")
		}
		_ = new(ruletest.Results).Run(set, func(*detector.Rule) bool { return true }, ruletest.File{Name: "f", Data: data})
	})
}
