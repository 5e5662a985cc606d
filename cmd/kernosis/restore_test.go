package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// restored is an agent that has read what is in a folder, and its log.
func restored(t *testing.T, dir string) (a *agent, log *strings.Builder) {
	t.Helper()
	set, err := detector.Load(rules.FS)
	if err != nil {
		t.Fatal(err)
	}
	return restoredWith(t, dir, set)
}

func restoredWith(t *testing.T, dir string, set *detector.RuleSet) (a *agent, log *strings.Builder) {
	t.Helper()
	store, err := journal.Open(filepath.Join(dir, journalDir), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log = &strings.Builder{}
	a = &agent{
		stateDir: dir, log: slog.New(slog.NewTextHandler(log, nil)), metrics: metrics.New("v", ""), journal: store,
		out: console.NewText(io.Discard), engine: detector.NewEngine(set), wake: make(chan struct{}, 1),
	}
	if err := a.restore(); err != nil {
		t.Fatal(err)
	}
	return a, log
}

// What another version has saved loses no problem: it may have put more into the file, and
// what is in a form that can't be read is set aside and made anew of the journal.
func TestStateOfANewerVersion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(of map[string]json.RawMessage)
		aside  bool
	}{
		"with more":                  {func(of map[string]json.RawMessage) { of["later"] = json.RawMessage(`{"is":[1]}`) }, false},
		"of a newer form":            {func(of map[string]json.RawMessage) { of["version"] = json.RawMessage(`2`) }, true},
		"with a newer engine":        {func(of map[string]json.RawMessage) { of["engine"] = json.RawMessage(`{"version":99}`) }, true},
		"with an engine in no form":  {func(of map[string]json.RawMessage) { of["engine"] = json.RawMessage(`[]`) }, true},
		"with a number of no number": {func(of map[string]json.RawMessage) { of["seq"] = json.RawMessage(`"one"`) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, _ := restored(t, dir)
			a.observe(killedEvent())
			was := len(a.engine.Problems())
			if err := a.save(t.Context()); err != nil || was == 0 {
				t.Fatal(was, err)
			}
			if err := a.journal.Close(); err != nil {
				t.Fatal(err)
			}
			var of map[string]json.RawMessage
			raw, err := os.ReadFile(a.statePath())
			if err == nil {
				err = json.Unmarshal(raw, &of)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.change(of)
			if raw, err = json.Marshal(of); err == nil {
				err = os.WriteFile(a.statePath(), raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			a, log := restored(t, dir)
			if n := len(a.engine.Problems()); n != was {
				t.Errorf("%d problems, want %d", n, was)
			}
			kept, err := os.ReadFile(a.statePath() + ".unread")
			if aside := err == nil && string(kept) == string(raw); aside != c.aside {
				t.Errorf("set aside: %v, %v", aside, err)
			}
			if reported := strings.Contains(log.String(), "level=WARN"); reported != c.aside {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}
