package agent

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// What the agent lacks is reported once, reported again when it changes, and no longer when it is
// available.
func TestSelfCheckReportsChanges(t *testing.T) {
	rules, err := LoadRules("")
	if err != nil {
		t.Fatal(err)
	}
	store, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := &pipeline{engine: detector.NewEngine(rules), journal: store, metrics: metrics.New("v", ""), out: console.NewText(io.Discard), wake: make(chan struct{}, 1)}
	condition := func() problem.Condition {
		for _, c := range a.conditions() {
			if c.Type == "KernosisDegraded" {
				return c
			}
		}
		t.Fatal("there is no such condition")
		return problem.Condition{}
	}
	root := t.TempDir()
	first, second := filepath.Join(root, "first"), filepath.Join(root, "second")
	var log strings.Builder
	s := &selfCheck{checker: selfcheck.New(selfcheck.Config{Logs: []selfcheck.Log{
		{Name: "a", Plugin: "kmsg", Path: first}, {Name: "b", Plugin: "kmsg", Path: second},
	}}), agent: a, log: slog.New(slog.NewTextHandler(&log, nil))}
	// This machine may itself lack something, but with a less severe reason.
	look := func(isFirst bool, status problem.Status, with, without string) {
		t.Helper()
		s.look(isFirst)
		c := condition()
		if c.Status != status || !strings.Contains(c.Message, with) || without != "" && strings.Contains(c.Message, without) {
			t.Errorf("got %+v, want %s with %q, without %q", c, status, with, without)
		}
	}
	look(true, problem.True, "without "+second, "nothing")
	if c := condition(); c.Reason != "MissingHostPath" || !strings.Contains(c.Message, "without "+first) {
		t.Errorf("got %+v", c)
	}
	if notes := strings.Join(s.notes(), "\n"); !strings.Contains(notes, "degraded: log/a: MissingHostPath: lacks "+first+", not seen: the log a") {
		t.Errorf("notes %q", notes)
	}
	s.reportLasting(func(ev *event.Event) {
		if ev.Check.Status != event.CheckProblem || !strings.Contains(ev.Check.Message, "without "+second) {
			t.Errorf("reported once more: %+v", ev.Check)
		}
	})
	seq := store.Seq()
	look(false, problem.True, "without "+second, "nothing")
	if store.Seq() != seq {
		t.Error("what has not changed is reported again")
	}
	if err := os.WriteFile(first, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look(false, problem.True, "without "+second, first)
	if !strings.Contains(log.String(), `msg="no longer degraded" part=log/a`) || strings.Count(log.String(), "part=log/b") != 1 {
		t.Errorf("log:\n%s", log.String())
	}
	// Also while its rule is muted, for when the mute ends.
	mute := problem.Mute{Rule: "kernosis-degraded", Until: time.Now().Add(time.Hour), Reason: "known"}
	a.engine.SetMutes([]problem.Mute{mute}, a.now())
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	look(false, problem.False, "without "+first, "nothing")
	a.engine.SetMutes(nil, a.now())
	if c := condition(); c.Status != problem.True || !strings.Contains(c.Message, "without "+first) {
		t.Errorf("after the mute: %+v", c)
	}
	for _, file := range []string{first, second} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.look(false)
	if c := condition(); len(s.notes()) == 0 && c.Status != problem.False {
		t.Errorf("nothing is lacking: %+v", c)
	}
}

// State is copied as a whole: without the journal, the state of the Events would refer to sequence
// numbers that are reused.
func TestStateThatCanNotBeCopied(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"events.json", JournalDir} { // the journal has to be a folder
		if err := os.WriteFile(filepath.Join(from, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyState(from, filepath.Join(t.TempDir(), "saved"), 1<<20); err == nil {
		t.Error("no error")
	}
}

// Full disks: without room for a folder, for a file, or for a file's content.
func TestFullStateDisk(t *testing.T) {
	for name, disk := range map[string]struct {
		options string
		saved   bool
	}{
		"no folder can be made":  {"size=4k,nr_inodes=1", false},
		"no file can be made":    {"size=64k,nr_inodes=3", true},
		"no byte can be written": {"size=4k", true},
	} {
		t.Run(name, func(t *testing.T) {
			full := mountTmpfs(t, disk.options)
			c := Config{StateDir: filepath.Join(full, "state"), JournalMiB: 64}
			if disk.saved {
				if err := os.Mkdir(c.StateDir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(c.StateDir, "saved.json"), []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			lacking, release, err := c.openState()
			if err != nil || !errors.Is(lacking, unix.ENOSPC) || strings.HasPrefix(c.StateDir, full) {
				t.Fatalf("%v, %v, %+v", lacking, err, c)
			}
			if _, err := os.Stat(filepath.Join(c.StateDir, "saved.json")); (err == nil) != disk.saved {
				t.Errorf("what is saved there: %v", err)
			}
			if err := release(); err != nil {
				t.Error(err)
			}
			if left, err := filepath.Glob(filepath.Join(full, "state", ".writable-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}

func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: no filesystem can be mounted")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestStateFolderThatCanNotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(file, "state") // a folder can't be created below a file
	c := Config{StateDir: want, JournalMiB: 64}
	lacking, release, err := c.openState()
	if err != nil || lacking == nil || c.StateDir == want || c.JournalMiB != maxVolatileJournal || c.Mutes != filepath.Join(want, MutesFile) {
		t.Fatalf("%v, %v, %+v", lacking, err, c)
	}
	if err := writable(c.StateDir); err != nil {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.StateDir); err == nil {
		t.Error("the folder stays")
	}
	// A writable folder is used as it is, by one agent at a time.
	c = Config{StateDir: filepath.Join(t.TempDir(), "state"), JournalMiB: 64}
	for range 2 {
		lacking, release, err := c.openState()
		if err != nil || lacking != nil || c.JournalMiB != 64 {
			t.Fatalf("%v, %v, %+v", lacking, err, c)
		}
		if _, _, err := c.openState(); !errors.Is(err, bpf.ErrBusy) {
			t.Errorf("a second agent: %v", err)
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	}
}
