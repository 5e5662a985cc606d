package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/detector/rules"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
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
	a, log = openedWith(t, dir, set)
	if err := a.restore(); err != nil {
		t.Fatal(err)
	}
	return a, log
}

// openedWith is one that has read nothing yet.
func openedWith(t *testing.T, dir string, set *detector.RuleSet) (a *agent, log *strings.Builder) {
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
	return a, log
}

// diagnosing is a restored agent that finds causes as well.
func diagnosing(t *testing.T, dir string, set *detector.RuleSet) *agent {
	t.Helper()
	a, _ := openedWith(t, dir, set)
	var cfg agentConfig
	cfg.StateDir, cfg.Diagnose = dir, diagnoseSettings{On: true, Keep: 1, ArtifactsMiB: 1}
	d, err := openDiagnoses(cfg, a, nil, a.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	a.causes = d.worker
	if err := a.restore(); err != nil {
		t.Fatal(err)
	}
	return a
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

// reboot marks the saved state of a killed agent as one of an earlier boot.
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

// inDiagnosis is how the problem of the only Diagnosis is.
func (a *agent) inDiagnosis(t *testing.T) string {
	t.Helper()
	var of struct {
		Wanted []struct{ Problem struct{ State string } }
	}
	raw, err := a.causes.State()
	if err == nil {
		err = json.Unmarshal(raw, &of)
	}
	if err != nil || len(of.Wanted) != 1 {
		t.Fatalf("%s: %v", raw, err)
	}
	return of.Wanted[0].Problem.State
}

// A problem that ends while no agent runs, with the boot or with the rule that it is of, is
// resolved at the next start: once, and in the Diagnosis whose repair waits.
func TestProblemThatEndedMeanwhile(t *testing.T) {
	const rule = "conditions: {Broken: {healthyReason: Whole, healthyMessage: whole}}\nrules:\n" +
		"- {name: oom-kill, events: [oomkill], condition: Broken, reason: OOMKilling, message: m, latched: true, groupBy: [%s]}\n"
	same, other := rulesOf(t, fmt.Sprintf(rule, "cgroup.path")), rulesOf(t, fmt.Sprintf(rule, "task.comm"))
	for name, c := range map[string]struct {
		rules         *detector.RuleSet
		behind, boots bool // it began behind the engine's state; the machine boots
		ended         bool
	}{
		"not":                    {rules: same},
		"not, behind the state":  {rules: same, behind: true},
		"rule":                   {rules: other, ended: true},
		"boot":                   {rules: same, boots: true, ended: true},
		"boot, behind the state": {rules: same, behind: true, boots: true, ended: true},
		"boot and rule, behind":  {rules: other, behind: true, boots: true, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := diagnosing(t, dir, same)
			before := a.savedState(t)
			a.observe(killedEvent())
			now := a.savedState(t)
			if state := a.inDiagnosis(t); state != string(v1alpha1.ProblemLasts) {
				t.Fatal(state)
			}
			a.kill(t)
			if c.behind {
				now["engine"], now["seq"] = before["engine"], before["seq"]
			}
			if c.boots {
				reboot(t, dir, now)
			}
			a.writeState(t, now)
			want, resolved := v1alpha1.ProblemLasts, 0
			if c.ended {
				want, resolved = v1alpha1.ProblemGone, 1
			}
			for start := range 2 { // killed before it saves anything
				a = diagnosing(t, dir, c.rules)
				if state := a.inDiagnosis(t); state != string(want) {
					t.Errorf("start %d: the problem %s, want %s", start, state, want)
				}
				a.kill(t)
			}
			n := 0
			if _, err := journal.Read(filepath.Join(dir, journalDir), 0, func(e journal.Entry) error {
				for _, tr := range e.Transitions {
					if tr.Problem != nil && tr.Problem.State == problem.Resolved {
						n++
					}
				}
				return nil
			}); err != nil || n != resolved {
				t.Errorf("resolved %d times in the journal, want %d: %v", n, resolved, err)
			}
		})
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

// A mute of a rule that is gone, and one of a field that is, leave the others in force after
// a reboot, and are reported.
func TestMuteOfAGoneRule(t *testing.T) {
	dir := t.TempDir()
	a, log := restored(t, dir)
	set, err := detector.Load(rules.FS)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, mutesName)
	if err := os.WriteFile(path, []byte(`apiVersion: rules.kernosis.io/v1
mutes:
- {rule: gone, until: 2020-01-01T00:00:00Z, reason: of an older version}
- {rule: disk-stalled, where: {disk: sda}, until: 2999-01-01T00:00:00Z, reason: of an older version}
- {rule: oom-kill, until: 2999-01-01T00:00:00Z, reason: known}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	newMuteFile(path, a, set).read()
	if have := a.engine.Mutes(); !slices.ContainsFunc(have, func(m problem.Mute) bool { return m.Rule == "oom-kill" }) {
		t.Errorf("in force: %v\n%s", have, log)
	}
	for _, want := range []string{"level=WARN", `unknown rule`, "mutes[1].where.disk: rule disk-stalled has no such field"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}
