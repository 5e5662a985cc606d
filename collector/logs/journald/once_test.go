package journald

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

func TestOnceEndsWhereTheJournalEnds(t *testing.T) {
	j := newJournal(t)
	j.write("a.journal", j.entry("one"), j.entry("two"), j.entry("three"))
	cfg := Config{Directory: j.dir, Lookback: 24 * time.Hour}
	once := func(cfg Config) (items []string, at logs.Position) {
		t.Helper()
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Once(t.Context(), func(item logs.Item) error {
			items = append(items, string(item.Line.Text))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return items, r.Position()
	}
	items, at := once(cfg)
	if want := []string{"one", "two", "three"}; !slices.Equal(items, want) {
		t.Errorf("%q, want %q", items, want)
	}
	cfg.Position = at
	if items, _ := once(cfg); len(items) > 0 {
		t.Errorf("again: %q", items)
	}
	r, err := New(Config{Directory: j.dir, Lookback: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	if err := r.Once(t.Context(), func(logs.Item) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Once(ended, func(logs.Item) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOnceReportsWhyTheJournalCannotBeRead(t *testing.T) {
	newJournal(t) // skips where there is no journalctl
	r, err := New(Config{Directory: filepath.Join(t.TempDir(), "missing")})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Once(t.Context(), func(logs.Item) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("error %v", err)
	}
	empty := t.TempDir()
	if r, err = New(Config{Directory: empty}); err != nil {
		t.Fatal(err)
	}
	err = r.Once(t.Context(), func(logs.Item) error { return nil })
	if !errors.Is(err, ErrNoFiles) || !strings.Contains(err.Error(), empty) {
		t.Errorf("error %v of an empty folder", err)
	}
}

func TestHasFiles(t *testing.T) {
	for name, want := range map[string]bool{
		"system.journal": true, "0123/system.journal": true, "0123/user-1000@1.journal~": true,
		"0123/fss": false, "system.journal/a": false, "a/b/system.journal": false,
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if have := HasFiles(hostfs.FS{}, dir); have != want {
			t.Errorf("%s: %v", name, have)
		}
	}
	if HasFiles(hostfs.FS{}, filepath.Join(t.TempDir(), "none")) {
		t.Error("a folder that is not there has files")
	}
}

// The host's file system is mounted in a folder: absolute links lead below that folder.
func TestLinksOfTheHost(t *testing.T) {
	root, id := t.TempDir(), strings.Repeat("c", 32)
	makeFile(t, filepath.Join(root, "data"))
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "var/log"), 0o755), os.Symlink("/data", filepath.Join(root, Folder)),
		os.Mkdir(filepath.Join(root, "etc"), 0o755), os.Symlink("/id", filepath.Join(root, "etc/machine-id")),
		os.WriteFile(filepath.Join(root, "id"), []byte(id+"\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.look(); err != nil || r.existing()[0] == nil || readMachineID(r.fs) != id {
		t.Errorf("%v, %v, machine %q", err, r.existing(), readMachineID(r.fs))
	}
}
