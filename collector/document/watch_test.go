package document_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// watch runs Watch until the test ends and returns a channel of its calls.
func watch(t *testing.T, dir string) <-chan struct{} {
	t.Helper()
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(done)
		close(started)
		document.Watch(ctx, dir, slog.New(slog.DiscardHandler), func() { changed <- struct{}{} })
	}()
	<-started
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return changed
}

// wait waits for a call of onChange. The first call means that the watch is set up; each change
// causes a further one.
func wait(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(testenv.Within(20 * time.Second)):
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

// A file that could not be read may have become readable.
func TestWatchMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "x")
	changed := watch(t, dir)
	wait(t, changed)
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	wait(t, changed)
}

// TestWatchConfigMap swaps the data as kubelet does: a new directory, and one
// rename of the symbolic link to it. The files read then are the new ones.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	n := 0
	swap := func(text string) {
		n++
		data := filepath.Join(dir, "..2026_"+string(rune('a'+n)))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(data, "r.yaml"), text)
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
	if text, err := os.ReadFile(filepath.Join(dir, "r.yaml")); err != nil || string(text) != "second" {
		t.Errorf("have %q, %v", text, err)
	}
}

// A directory that can't be watched is read every 10 s, and watched once it can be.
func TestWatchNoDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "absent")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var logs testenv.LogBuffer
		changed, done := make(chan struct{}), make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			document.Watch(ctx, dir, slog.New(slog.NewTextHandler(&logs, nil)), func() { changed <- struct{}{} })
		}()
		for _, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
			if <-changed; time.Since(began) != want {
				t.Errorf("called after %v, want %v", time.Since(began), want)
			}
		}
		if text := logs.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, dir) {
			t.Errorf("log:\n%s", text)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		<-changed // the watch is set up; the bubble's time stands still from now on
		cancel()
		<-done
	})
}
