package agent

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
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// restored returns an agent that has restored the state in a folder, and its log.
func restored(t *testing.T, dir string) (a *pipeline, log *strings.Builder) {
	t.Helper()
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	return restoredWith(t, dir, set)
}

func restoredWith(t *testing.T, dir string, set *detector.RuleSet) (a *pipeline, log *strings.Builder) {
	t.Helper()
	a, log = openedWith(t, dir, set)
	if err := a.restore(); err != nil {
		t.Fatal(err)
	}
	return a, log
}

// openedWith returns an agent that has restored nothing yet.
func openedWith(t *testing.T, dir string, set *detector.RuleSet) (a *pipeline, log *strings.Builder) {
	t.Helper()
	store, err := journal.Open(filepath.Join(dir, JournalDir), journal.Options{Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log = &strings.Builder{}
	a = &pipeline{
		stateDir: dir, log: slog.New(slog.NewTextHandler(log, nil)), metrics: metrics.New("v", ""), journal: store,
		out: console.NewText(io.Discard), engine: detector.NewEngine(set), wake: make(chan struct{}, 1),
	}
	return a, log
}

// diagnosing returns a restored agent that also diagnoses.
func diagnosing(t *testing.T, dir string, set *detector.RuleSet) *pipeline {
	t.Helper()
	a, _ := openedWith(t, dir, set)
	p := &parts{cfg: Config{StateDir: dir, Diagnose: diagnoseSettings{On: true, Keep: 1, ArtifactsMiB: 1}}, log: a.log, metrics: a.metrics, agent: a}
	t.Cleanup(func() { p.close() })
	if err := p.openDiagnoses(); err != nil {
		t.Fatal(err)
	}
	if err := a.restore(); err != nil {
		t.Fatal(err)
	}
	return a
}

// kill ends an agent as kill -9 does.
func (a *pipeline) kill(t *testing.T) {
	t.Helper()
	if err := a.journal.Close(); err != nil {
		t.Fatal(err)
	}
}

// savedState saves the state and returns the content of the file.
func (a *pipeline) savedState(t *testing.T) (of map[string]json.RawMessage) {
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

func (a *pipeline) writeState(t *testing.T, of map[string]json.RawMessage) []byte {
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
	folder := filepath.Join(dir, JournalDir)
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
	store, err := journal.Open(folder, journal.Options{Patience: time.Minute})
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

// If the agent is killed before it saves a state in this boot, problems of this boot are not
// forgotten, and problems of the previous boot do not come back.
func TestKilledBeforeTheFirstSaveOfABoot(t *testing.T) {
	dir := t.TempDir()
	a, _ := restored(t, dir)
	a.observe(killedEvent())
	of, was := a.savedState(t), a.engine.Problems()
	a.observe(killedEvent()) // after the saved state
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

// inDiagnosis returns the state of the problem of the only Diagnosis.
func (a *pipeline) inDiagnosis(t *testing.T) string {
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

// A problem that ends while no agent runs, because of a reboot or because its rule is gone, is
// resolved at the next start: once, and also in the Diagnosis whose repair waits.
func TestProblemThatEndedMeanwhile(t *testing.T) {
	const rule = "conditions: {Broken: {healthyReason: Whole, healthyMessage: whole}}\nrules:\n" +
		"- {name: oom-kill, events: [oomkill], condition: Broken, reason: OOMKilling, message: m, latched: true, groupBy: [%s]}\n"
	same, other := rulesOf(t, fmt.Sprintf(rule, "cgroup.path")), rulesOf(t, fmt.Sprintf(rule, "task.comm"))
	for name, c := range map[string]struct {
		rules         *detector.RuleSet
		behind, boots bool // the problem began after the engine's state was saved; the machine reboots
		reloaded      bool // the rules are reloaded before the agent is killed
		ended         bool
	}{
		"not":                    {rules: same},
		"not, behind the state":  {rules: same, behind: true},
		"rule":                   {rules: other, ended: true},
		"boot":                   {rules: same, boots: true, ended: true},
		"boot, behind the state": {rules: same, behind: true, boots: true, ended: true},
		"boot and rule, behind":  {rules: other, behind: true, boots: true, ended: true},
		"reload":                 {rules: other, reloaded: true, ended: true},
		"reload, both behind":    {rules: other, behind: true, reloaded: true, ended: true},
		"reload and boot":        {rules: other, reloaded: true, boots: true, ended: true},
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
			if c.reloaded {
				a.patterns, a.lasting = func(*logpattern.Set) {}, func(collector.Emit) {}
				a.replace(c.rules)
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
			if _, err := journal.Read(filepath.Join(dir, JournalDir), 0, func(e journal.Entry) error {
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

// reportedBehind returns what the journal of a killed agent reports after entry seq.
func reportedBehind(t *testing.T, dir string, seq uint64) (out []string) {
	t.Helper()
	if _, err := journal.Read(filepath.Join(dir, JournalDir), seq, func(e journal.Entry) error {
		for _, tr := range e.Transitions {
			switch p, c := tr.Problem, tr.Condition; {
			case c != nil:
				out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
			case p.SuppressedBy != "":
				out = append(out, fmt.Sprintf("%s %s by %s", p.Rule, p.State, p.SuppressedBy))
			default:
				out = append(out, fmt.Sprintf("%s %s", p.Rule, p.State))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// A permanent problem that changed rules hide or reveal is reported as such, once, by a reload or by
// the first start with these rules, however often the agent is killed before it saves anything. A
// revealed problem starts its Diagnosis, with its evidence.
func TestRulesThatHideAndReveal(t *testing.T) {
	const rule = "conditions: {Broken: {healthyReason: Whole, healthyMessage: whole}, Slow: {healthyReason: Fast, healthyMessage: fast}}\nrules:\n" +
		"- {name: cause, events: [oomkill], condition: Slow, reason: Cause, message: m, latched: true}\n" +
		"- {name: oom-kill, events: [oomkill], condition: Broken, reason: OOMKilling, message: m, latched: true, groupBy: [cgroup.path]%s}\n"
	apart, dependent := rulesOf(t, fmt.Sprintf(rule, "")), rulesOf(t, fmt.Sprintf(rule, ", dependsOn: [cause]"))
	for name, c := range map[string]struct {
		hides, reloads bool
		want           []string
	}{
		"reveals at a start":  {want: []string{"oom-kill firing", "Broken=True"}},
		"reveals at a reload": {reloads: true, want: []string{"oom-kill firing", "Broken=True"}},
		"hides at a start":    {hides: true, want: []string{"oom-kill firing by cause"}}, // the condition is Unknown until its source is up
		"hides at a reload":   {hides: true, reloads: true, want: []string{"oom-kill firing by cause", "Broken=Unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := dependent, apart
			if c.hides {
				before, after = apart, dependent
			}
			dir := t.TempDir()
			a := diagnosing(t, dir, before)
			a.patterns, a.lasting = func(*logpattern.Set) {}, func(collector.Emit) {}
			a.observe(killedEvent())
			a.savedState(t)
			seq, diagnosis := a.journal.Seq(), ""
			if c.reloads {
				a.replace(after)
			}
			a.kill(t)
			for start := range 3 {
				a = diagnosing(t, dir, after)
				switch all := a.causes.List(); {
				case len(all) != 1:
					t.Errorf("start %d: %d Diagnoses, want 1", start, len(all))
				case start == 0:
					diagnosis = all[0].Name
				case all[0].Name != diagnosis:
					t.Errorf("start %d: another Diagnosis: %s for %s", start, all[0].Name, diagnosis)
				}
				a.kill(t)
			}
			if diff := cmp.Diff(c.want, reportedBehind(t, dir, seq)); diff != "" {
				t.Errorf("reported (-want +have):\n%s", diff)
			}
		})
	}
}

// State saved by another version loses no problem: additions are ignored, and state in an unknown
// format is set aside and rebuilt from the journal.
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

// If an upgrade replays the whole journal, its new rules start no Diagnosis of old problems, and
// later problems are diagnosed.
func TestNewRuleOfANewerVersion(t *testing.T) {
	const rule = "rules:\n- {name: other, events: [oomkill], reason: Other, message: m}\n"
	const added = "- {name: oom-kill, events: [oomkill], reason: OOMKilling, message: m, groupBy: [cgroup.path]}\n"
	dir := t.TempDir()
	a := diagnosing(t, dir, rulesOf(t, rule))
	old := a.now()
	old.Wall = old.Wall.Add(-time.Hour)
	a.mu.Lock()
	a.step(killedEvent(), old)
	a.flushEntries()
	a.mu.Unlock()
	of := a.savedState(t)
	a.kill(t)
	of["engine"] = json.RawMessage(`{"version":99}`)
	a.writeState(t, of)

	a = diagnosing(t, dir, rulesOf(t, rule+added))
	if !slices.ContainsFunc(a.engine.Problems(), func(p problem.Problem) bool { return p.Rule == "oom-kill" }) {
		t.Fatal("the journal was not replayed")
	}
	if all := a.causes.List(); len(all) != 0 {
		t.Errorf("%d Diagnoses of an old problem, want none", len(all))
	}
	ev := killedEvent()
	ev.Cgroup.Path += "-2"
	a.observe(ev)
	if all := a.causes.List(); len(all) != 1 {
		t.Errorf("%d Diagnoses of a new problem, want 1", len(all))
	}
}

// The agent starts although part of its state can't be read, and restores the rest.
func TestStateThatCanNotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		unread  func(segments []string) string
		without string // a file that is missing besides
		lost    bool   // problems
		damaged uint64
	}{
		"the oldest segment": {func(s []string) string { return s[0] }, EngineFile, true, 1},
		"the newest segment": {func(s []string) string { return s[1] }, "", false, 1},
		"the engine's state": {func(s []string) string { return filepath.Join(filepath.Dir(s[0]), "..", EngineFile) }, "", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, _ := restored(t, dir)
			a.observe(killedEvent())
			was := len(a.engine.Problems())
			if was == 0 {
				t.Fatal("no problem")
			}
			a.savedState(t)
			a.kill(t)
			store, err := journal.Open(filepath.Join(dir, JournalDir), journal.Options{SegmentBytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = store.Add(journal.NewEntry(a.now()))
			if err = errors.Join(err, store.Close()); err != nil {
				t.Fatal(err)
			}
			segments, err := filepath.Glob(filepath.Join(dir, JournalDir, "*.jsonl"))
			if err != nil || len(segments) != 2 {
				t.Fatal(segments, err)
			}
			path := c.unread(segments)
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
			if c.without != "" {
				if err := os.Remove(filepath.Join(dir, c.without)); err != nil {
					t.Fatal(err)
				}
			}
			a, log := restored(t, dir)
			if n := len(a.engine.Problems()); n != was && !c.lost {
				t.Errorf("%d problems, want %d", n, was)
			}
			if n := a.journal.Stats().Damaged; n != c.damaged || !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("%d damaged, log:\n%s", n, log)
			}
			a.savedState(t)
		})
	}
}

// Mutes of a removed rule or a removed field are reported after a reboot, and the other mutes stay in
// force.
func TestMuteOfAGoneRule(t *testing.T) {
	dir := t.TempDir()
	a, log := restored(t, dir)
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, MutesFile)
	if err := os.WriteFile(path, []byte(`apiVersion: rules.kernosis.io/v1
mutes:
- {rule: gone, until: 2020-01-01T00:00:00Z, reason: of an older version}
- {rule: disk-stalled, where: {disk: sda}, until: 2999-01-01T00:00:00Z, reason: of an older version}
- {rule: oom-kill, until: 2999-01-01T00:00:00Z, reason: known}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	(&muteFile{path: path, a: a, rules: set}).read()
	if have := a.engine.Mutes(); !slices.ContainsFunc(have, func(m problem.Mute) bool { return m.Rule == "oom-kill" }) {
		t.Errorf("in force: %v\n%s", have, log)
	}
	for _, want := range []string{"level=WARN", `unknown rule`, "mutes[1].where.disk: rule disk-stalled has no such field"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
}
