package detector_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.Run(m.Run)) }

// watch runs Watch until the test ends and returns a channel of its calls.
func watch(t *testing.T, dir string) <-chan struct{} {
	t.Helper()
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		done <- detector.Watch(ctx, dir, func() { changed <- struct{}{} })
	}()
	<-started
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return changed
}

// wait waits for a call, which follows each change once the first call has said that the
// watch stands.
func wait(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(await.Within(20 * time.Second)):
		t.Fatal("the change was not noticed")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFile(t *testing.T) {
	dir := t.TempDir()
	changed := watch(t, dir)
	wait(t, changed)
	write(t, filepath.Join(dir, "a.yaml"), time.Now().String())
	wait(t, changed)
	write(t, filepath.Join(dir, "new"), "x")
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Error(err)
	}
	wait(t, changed)
}

// The digest is another one with every change of what is read as rules, and with nothing
// else.
func TestContents(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	seen := map[[32]byte]string{}
	step := func(what string, differs bool, change func()) {
		t.Helper()
		before, err := detector.Contents(dir)
		if err != nil {
			t.Fatal(err)
		}
		seen[before] = what
		change()
		after, err := detector.Contents(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, same := seen[after]; same == differs {
			t.Errorf("%s: seen before: %t", what, same)
		}
	}
	step("a file", true, func() { write(t, path("a.yaml"), "rules: []") })
	step("the same again", false, func() { write(t, path("a.yaml"), "rules: []") })
	step("other text", true, func() { write(t, path("a.yaml"), "rules: [ ]") })
	step("one more", true, func() { write(t, path("b.yml"), "") })
	step("another name", true, func() {
		if err := os.Rename(path("b.yml"), path("c.yml")); err != nil {
			t.Fatal(err)
		}
	})
	step("tests and others", false, func() {
		write(t, path("a_test.yaml"), "x")
		write(t, path(".a.yaml"), "x")
		write(t, path("README.md"), "x")
	})
	step("a pipe, which nobody writes to", false, func() {
		if err := syscall.Mkfifo(path("pipe.yaml"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	step("a link to nowhere", true, func() {
		if err := os.Symlink("none", path("d.yaml")); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := detector.Contents(path("none")); err == nil {
		t.Error("of a directory that is not there")
	}
}

// TestWatchConfigMap swaps the data as kubelet does: a new directory, and one
// rename of the symbolic link to it. The files read are the new ones.
func TestWatchConfigMap(t *testing.T) {
	const rule = `apiVersion: rules.kernosis.io/v1
rules:
- {name: told, events: [oomkill], reason: R, message: `
	dir := t.TempDir()
	n := 0
	swap := func(message string) {
		n++
		data := filepath.Join(dir, "..2026_"+string(rune('a'+n)))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(data, "r.yaml"), rule+message+"}\n")
		tmp := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(filepath.Base(data), tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("first")
	if err := os.Symlink("..data/r.yaml", filepath.Join(dir, "r.yaml")); err != nil {
		t.Fatal(err)
	}
	changed := watch(t, dir)
	wait(t, changed)
	swap("second")
	wait(t, changed)
	set, err := detector.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := set.Rule("told"); !ok || r.Message != "second" {
		t.Errorf("have %+v, want the second message", r)
	}
}

func TestWatchNoDirectory(t *testing.T) {
	if err := detector.Watch(context.Background(), filepath.Join(t.TempDir(), "absent"), func() {}); err == nil {
		t.Error("no error for a directory that isn't there")
	}
}
