package artifact

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// returns fails the test if f does not return within a time.
func returns(t *testing.T, what string, within time.Duration, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(testenv.Within(within)):
		t.Fatalf("%s waits for the storage folder", what)
	}
}

// late returns nil for the error of a storage folder that hangs, else an error.
func late(err error) error {
	if errors.Is(err, bounded.ErrLate) {
		return nil
	}
	return errors.Join(errors.New("it does not report that the storage folder hangs"), err)
}

// create creates an artifact of a node in an operation's folder.
func create(r *Run, folder, name string) error {
	a, err := r.Of(1, folder)
	if err != nil {
		return err
	}
	w, err := a.Create(name)
	if err != nil {
		return err
	}
	return w.Close()
}

// TestStorageHangs: only the artifacts of an operation's folder wait for its disk, and not for long.
func TestStorageHangs(t *testing.T) {
	dir, storage := filepath.Join(t.TempDir(), "artifacts"), t.TempDir()
	s := open(t, Config{Dir: dir, Storage: storage})
	old := begin(t, s, "old")
	keep(t, old, "x", "a.txt", []byte("old"))
	old.End()
	r := begin(t, s, "d1")
	a, err := r.Of(1, "x")
	if err != nil {
		t.Fatal(err)
	}
	half, err := a.Create("half")
	if err != nil {
		t.Fatal(err)
	}

	disk := disklab.HangFiles(t, filepath.Join(storage, "x"))
	created := make(chan error, 1)
	go func() {
		_, err := a.Create("g")
		created <- err
	}()
	disk.Wait()
	returns(t, "another run", 5*time.Second, func() error {
		d2, err := s.Begin("d2")
		if err != nil {
			return err
		}
		w, err := d2.create("g", "")
		if err != nil {
			return err
		}
		_, err = w.Write([]byte("here"))
		err = errors.Join(err, w.Close())
		d2.End()
		return err
	})
	returns(t, "removing a run", 5*time.Second, func() error { return late(s.Remove("old")) })
	returns(t, "the artifact", 20*time.Second, func() error { return late(<-created) })
	returns(t, "the next artifact", time.Second, func() error { return late(create(r, "x/y", "h")) })
	returns(t, "Write", time.Second, func() error {
		_, err := half.Write([]byte("half"))
		return late(err)
	})
	returns(t, "Close", time.Second, func() error { return late(half.Close()) })
	returns(t, "End", 5*time.Second, func() error { r.End(); return nil })
	if _, err := os.Stat(filepath.Join(dir, "old", indexFile)); err != nil {
		t.Errorf("the folder of a removed run is forgotten: %v", err)
	}
	again := begin(t, s, "old")
	if err := create(again, "x", "b.txt"); err == nil {
		t.Error("an artifact is created in a folder that is being removed")
	}

	disk.Release()
	testenv.Until(t, "the end of the removal", 10*time.Second, func() bool { return create(again, "x", "b.txt") == nil })
	missing(t, filepath.Join(storage, "x", "old", "1-a.txt"))
	if b, a := read(t, s, "old", "1-b.txt"); len(b) != 0 || a.Folder != filepath.Join(storage, "x") {
		t.Errorf("%q %+v", b, a)
	}
	if left, _ := filepath.Glob(filepath.Join(storage, "x/d1/.1-g*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	again.End()
	if err := errors.Join(s.Remove("old"), s.Remove("d2")); err != nil {
		t.Error(err)
	}
	missing(t, filepath.Join(storage, "x", "old"))
}

// TestStorageHangsAtTheStart: the store opens without what it can't read, and forgets nothing.
func TestStorageHangsAtTheStart(t *testing.T) {
	testenv.HoldKernel(t) // once for all of them
	for name, held := range map[string]string{"the storage folder": "", "an operation's folder": "x"} {
		t.Run(name, func(t *testing.T) {
			dir, storage := filepath.Join(t.TempDir(), "artifacts"), t.TempDir()
			config := Config{Dir: dir, Storage: storage}
			s := open(t, config)
			r := begin(t, s, "d1")
			keep(t, r, "x", "a.txt", []byte("there"))
			put(t, begin(t, s, "d2"), "b.txt", []byte("here"))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			disk := disklab.HangFiles(t, filepath.Join(storage, held))
			returns(t, "Open", 25*time.Second, func() error {
				var err error
				s, err = Open(config, quiet())
				return err
			})
			t.Cleanup(func() { _ = s.Close() })
			if b, _ := read(t, s, "d2", "b.txt"); string(b) != "here" {
				t.Errorf("got %q", b)
			}
			r = begin(t, s, "d1")
			returns(t, "an artifact", time.Second, func() error { return late(create(r, "x", "c.txt")) })
			r.End()

			disk.Release()
			r = begin(t, s, "d3")
			testenv.Until(t, "the storage folder", 10*time.Second, func() bool { return create(r, "x", "c.txt") == nil })
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, config)
			if b, a := read(t, s, "d1", "1-a.txt"); string(b) != "there" || !strings.HasPrefix(a.Folder, storage) {
				t.Errorf("%q %+v", b, a)
			}
		})
	}
}
