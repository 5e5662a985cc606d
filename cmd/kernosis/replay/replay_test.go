package replay_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/cmd/kernosis/replay"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ruleSet(t testing.TB, yaml []byte) *detector.RuleSet {
	t.Helper()
	set, err := detector.Load(fstest.MapFS{"r.yaml": &fstest.MapFile{Data: yaml}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// output replays data that was last written at a time, and returns all output.
func output(t testing.TB, cfg replay.Config, written time.Time, data []byte, json bool) string {
	t.Helper()
	var out bytes.Buffer
	w := replay.NewText(&out, true)
	if json {
		w = replay.NewJSON(&out, false)
	}
	cfg.Step = w.Step
	cfg.Bad = func(file string, line int, err error) { fmt.Fprintf(&out, "%s:%d: %v\n", file, line, err) }
	r := replay.New(cfg)
	if err := r.File("input", written, bytes.NewReader(data)); err != nil {
		return err.Error() + "\n"
	}
	sum, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Summary(&sum); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestGolden replays the input of each archive twice, as text and as JSON.
func TestGolden(t *testing.T) {
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
			files := make(map[string][]byte)
			for _, f := range archive.Files {
				files[f.Name] = f.Data
			}
			cfg := replay.Config{Rules: ruleSet(t, files["rules.yaml"]), Compare: filepath.Base(path) == "journal.txtar"}
			written := time.Date(2026, time.January, 2, 0, 0, 0, 0, time.UTC)
			if strings.HasPrefix(filepath.Base(path), string(replay.Plain)) {
				cfg.Format = replay.Plain // it is never detected
			}
			for _, name := range []string{"text", "json"} {
				have := output(t, cfg, written, files["input"], name == "json")
				if again := output(t, cfg, written, files["input"], name == "json"); again != have {
					t.Errorf("%s: twice is not the same:\n%s", name, cmp.Diff(have, again))
				}
				if _, ok := files[name]; *update && !ok {
					archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(have)})
				}
				for i := range archive.Files {
					if *update && archive.Files[i].Name == name {
						archive.Files[i].Data = []byte(have)
					}
				}
				if !*update && have != string(files[name]) {
					t.Errorf("%s (-want +have):\n%s", name, cmp.Diff(string(files[name]), have))
				}
			}
			if *update {
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

const countRules = `apiVersion: rules.kernosis.io/v1
rules:
- {name: bug, events: [log], pattern: 'BUG', reason: Bug, message: "${log.text}", clearAfter: 1m}
`

const bugs = "[   10.000000] BUG 1\n[   20.000000] BUG 2\n[  300.000000] BUG 3\n"

func TestUntilBootAndMutes(t *testing.T) {
	set := ruleSet(t, []byte(countRules))
	boot := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	muted := []problem.Mute{{Rule: "bug", Until: boot.Add(time.Minute), Reason: "r"}}
	for name, c := range map[string]struct {
		cfg              replay.Config
		events, resolved int
		to               time.Time
	}{
		"all":        {replay.Config{}, 3, 1, time.Unix(300, 0).UTC()},
		"after":      {replay.Config{Until: &replay.Until{After: 15 * time.Second}}, 1, 0, time.Unix(15, 0).UTC()},
		"at":         {replay.Config{Boot: boot, Until: &replay.Until{At: boot.Add(100 * time.Second)}}, 2, 1, boot.Add(100 * time.Second)},
		"behind end": {replay.Config{Until: &replay.Until{Past: time.Hour}}, 3, 2, time.Unix(3900, 0).UTC()},
		"muted":      {replay.Config{Boot: boot, Mutes: &muted}, 3, 1, boot.Add(300 * time.Second)},
	} {
		c.cfg.Rules = set
		shown := 0
		c.cfg.Step = func(s *replay.Step) error {
			for _, tr := range s.Transitions {
				if tr.Problem != nil && tr.Problem.State == problem.Firing && tr.Problem.MutedUntil.IsZero() {
					shown++
				}
			}
			return nil
		}
		r := replay.New(c.cfg)
		if err := r.File("f", time.Time{}, strings.NewReader(bugs)); err != nil {
			t.Fatal(err)
		}
		sum, err := r.End()
		if err != nil || sum.Events != c.events || sum.Resolved != uint64(c.resolved) || !sum.To.Equal(c.to) {
			t.Errorf("%s: %+v %v, want %d events, %d resolved, to %v", name, sum, err, c.events, c.resolved, c.to)
		}
		if want := map[bool]int{true: 1, false: c.events}[name == "muted"]; shown != want {
			t.Errorf("%s: %d shown, want %d", name, shown, want)
		}
	}
}

// A reboot ends all problems, and keeps mutes.
func TestJournalOverReboot(t *testing.T) {
	set := ruleSet(t, []byte(`apiVersion: rules.kernosis.io/v1
rules:
- {name: bug, events: [log], pattern: 'BUG', reason: Bug, message: "${log.text}", clearAfter: 24h}
`))
	entry := func(seconds int, boot, text string) (export, json string) {
		return fmt.Sprintf("__REALTIME_TIMESTAMP=%d000000\n_BOOT_ID=%s\n_TRANSPORT=kernel\nMESSAGE=%s\n\n", 1767362645+seconds, boot, text),
			fmt.Sprintf(`{"__REALTIME_TIMESTAMP":"%d000000","_BOOT_ID":%q,"_TRANSPORT":"kernel","MESSAGE":%q}`+"\n", 1767362645+seconds, boot, text)
	}
	boots := []string{strings.Repeat("a", 32), strings.Repeat("b", 32)}
	export1, json1 := entry(0, boots[0], "BUG 1")
	export2, json2 := entry(3600, boots[1], "fine")
	export3, json3 := entry(3601, boots[1], "BUG 2")
	muted := []problem.Mute{{Rule: "bug", Until: time.Unix(1<<34, 0), Reason: "r"}}
	for input, firing := range map[string]int{
		export1 + export2: 0, export1 + export2 + export3: 1, export1: 1,
		json1 + json2: 0, json1 + json2 + json3: 1,
	} {
		r := replay.New(replay.Config{Rules: set, Mutes: &muted})
		if err := r.File("f", time.Time{}, strings.NewReader(input)); err != nil {
			t.Fatal(err)
		}
		sum, err := r.End()
		if err != nil || len(sum.Problems) != firing {
			t.Errorf("%s\n%v: got %+v, want %d", input, err, sum.Problems, firing)
		}
		for _, p := range sum.Problems {
			if p.MutedUntil.IsZero() {
				t.Errorf("not muted after the reboot: %+v", p)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	set := ruleSet(t, []byte(countRules))
	for _, data := range []string{"", "\n\n", "nothing of this\nhas a time\n", "\x00\xff\n"} {
		if err := replay.New(replay.Config{Rules: set}).File("f", time.Time{}, strings.NewReader(data)); !errors.Is(err, replay.ErrFormat) {
			t.Errorf("%q: %v", data, err)
		}
	}
	// A line of any length is skipped, and the next lines are read.
	var bad []string
	r := replay.New(replay.Config{Rules: set, Bad: func(_ string, line int, err error) { bad = append(bad, fmt.Sprint(line, err)) }})
	if err := r.File("f", time.Time{}, strings.NewReader(bugs+strings.Repeat("x", 5<<20)+"\n[  301.000000] BUG 4")); err != nil {
		t.Fatal(err)
	}
	sum, err := r.End()
	if err != nil || sum.Events != 4 || sum.Bad != 1 || len(bad) != 1 || !strings.HasPrefix(bad[0], "4 line is longer") {
		t.Errorf("%+v, %v, %v", sum, bad, err)
	}
	// An error of Step ends the replay.
	broken := errors.New("pipe is broken")
	r = replay.New(replay.Config{Rules: set, Step: func(*replay.Step) error { return broken }})
	if err := r.File("f", time.Time{}, strings.NewReader(bugs)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// FuzzFile: no file makes the replay panic, give different outputs, or write control sequences
// to a terminal.
func FuzzFile(f *testing.F) {
	set := ruleSet(f, []byte(countRules+`- {name: kill, events: [oomkill], groupBy: [task.comm], reason: R, message: "${task.comm}"}
`))
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if file.Name == "input" {
				f.Add(file.Data)
			}
		}
	}
	f.Add([]byte(bugs))
	f.Add([]byte("<6>[9999999999.999999999] BUG\n[0.0] BUG\n"))
	f.Add([]byte("time=\"2026-11-23T22:31:00Z\" BUG\ntime=\"x\" BUG\n"))
	monitors := monitored(f, nil, oomMonitor, dockerMonitor, "m.json\x00{"+filelog+`"pluginConfig": {"timestamp": "^time=\"(\\S*)\"", "message": ".*",
		"timestampFormat": "2006-01-02T15:04:05Z07:00"}, "rules": [{"type": "temporary", "reason": "Bug", "pattern": "BUG.*"}]}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range append(replay.Formats(), "") {
			for _, cfg := range []replay.Config{{Rules: set, Compare: format == replay.Journal}, monitors} {
				cfg.Format = format
				have := output(t, cfg, lateNovember, data, false)
				if again := output(t, cfg, lateNovember, data, false); again != have {
					t.Errorf("%s: twice is not the same:\n%s", format, cmp.Diff(have, again))
				}
				if i := strings.IndexAny(have, "\x1b\u202e\x7f\r"); i >= 0 {
					t.Errorf("%s: %q", format, have[max(0, i-100):])
				}
			}
		}
	})
}
