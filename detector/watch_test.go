package detector_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kernosis/kernosis/detector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// wait waits for a call; when is what makes the change, repeated because
// nothing tells when the watch is in place.
func wait(t *testing.T, changed <-chan struct{}, change func()) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	change()
	for {
		select {
		case <-changed:
			return
		case <-again.C:
			change()
		case <-deadline:
			t.Fatal("the change was not noticed")
		}
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
	wait(t, changed, func() { write(t, filepath.Join(dir, "a.yaml"), time.Now().String()) })
	wait(t, changed, func() {
		write(t, filepath.Join(dir, "new"), "x")
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "a.yaml")); err != nil {
			t.Error(err)
		}
	})
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
	wait(t, changed, func() { swap("second") })
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
