package vmtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// quickRules returns a folder for --rules-dir with a stem's shipped rules, in which one of their
// durations (for, clearAfter, or the threshold's within) is reduced to value, wherever a rule has
// it, also by default. Waiting for the shipped durations would take minutes.
func quickRules(t *testing.T, stem, field, value string) string {
	t.Helper()
	text, err := fs.ReadFile(detector.Shipped(), stem+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		APIVersion string           `yaml:"apiVersion"`
		Conditions map[string]any   `yaml:"conditions,omitempty"`
		Rules      []map[string]any `yaml:"rules"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, r := range file.Rules {
		_, has := r[field]
		_, clears := r["clearWhen"]
		if has || field == "clearAfter" && !clears {
			r[field] = value
			cut++
		}
	}
	if cut == 0 {
		t.Fatalf("no rule of %s has %q", stem, field)
	}
	if text, err = yaml.Marshal(file); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, stem+".yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// problems returns the transitions of a rule's problems for which of returns true, in order.
func problems(entries []journal.Entry, rule string, of func(*problem.Problem) bool) []problem.Problem {
	var found []problem.Problem
	for _, e := range entries {
		for _, tr := range e.Transitions {
			if tr.Problem != nil && tr.Problem.Rule == rule && of(tr.Problem) {
				found = append(found, *tr.Problem)
			}
		}
	}
	return found
}
