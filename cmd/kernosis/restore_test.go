package main

import (
	"encoding/json"
	"errors"
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

// kill ends an agent as kill -9 does.
func (a *agent) kill(t *testing.T) {
	t.Helper()
	if err := a.journal.Close(); err != nil {
		t.Fatal(err)
	}
}

// savedState is the file of the state as it is now, saved at once.
func (a *agent) savedState(t *testing.T) (of map[string]json.RawMessage) {
	t.Helper()
	err := a.save(t.Context())
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(a.statePath())
	}
	if err == nil {
		err = json.Unmarshal(raw, &of)
	}
	if err != nil {
		t.Fatal(err)
	}
	return of
}

func (a *agent) writeState(t *testing.T, of map[string]json.RawMessage) []byte {
	t.Helper()
	raw, err := json.Marshal(of)
	if err == nil {
		err = os.WriteFile(a.statePath(), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// reboot makes what a killed agent has left that of an earlier boot.
func reboot(t *testing.T, dir string, of map[string]json.RawMessage) {
	t.Helper()
	of["bootID"] = json.RawMessage(`"before"`)
	folder := filepath.Join(dir, journalDir)
	var entries []journal.Entry
	_, err := journal.Read(folder, 0, func(e journal.Entry) error {
		if e.Boot != "" {
			e.Boot = "before"
		}
		entries = append(entries, e)
		return nil
	})
	if err == nil {
		err = os.RemoveAll(folder)
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := journal.Open(folder, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, _, err := store.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(store.Flush(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// What was detected in this boot is not forgotten where the agent is killed before it saves a
// state of it, and what was before the boot does not come back.
func TestKilledBeforeTheFirstSaveOfABoot(t *testing.T) {
	dir := t.TempDir()
	a, _ := restored(t, dir)
	a.observe(killedEvent())
	of, was := a.savedState(t), a.engine.Problems()
	a.observe(killedEvent()) // behind the state
	a.kill(t)
	reboot(t, dir, of)
	a.writeState(t, of)

	a, _ = restored(t, dir)
	if n := len(a.engine.Problems()); n != 0 {
		t.Errorf("%d problems after the boot, want none", n)
	}
	a.observe(killedEvent())
	a.kill(t)
	a, _ = restored(t, dir)
	problems := a.engine.Problems()
	if len(problems) != len(was) {
		t.Fatalf("%d problems after the kill, want %d", len(problems), len(was))
	}
	for _, p := range problems {
		if p.Count != 1 {
			t.Errorf("%s counts %d, want 1", p.Rule, p.Count)
		}
	}
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
			if was == 0 {
				t.Fatal("no problem")
			}
			of := a.savedState(t)
			a.kill(t)
			c.change(of)
			raw := a.writeState(t, of)
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
