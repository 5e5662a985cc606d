package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReplace(t *testing.T) {
	for _, durable := range []bool{false, true} {
		f := File{Path: filepath.Join(t.TempDir(), "state.json"), Durable: durable}
		// Left by a killed program, longer than what is written.
		if err := os.WriteFile(f.Path+".new", []byte(strings.Repeat("x", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"first", "", "second"} {
			f.Written = func() {
				if text == "second" && (read(t, f.Path) != "" || read(t, f.Path+".new") != text) {
					t.Error("the old content is not there until the new one is whole")
				}
			}
			if err := f.Replace([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if got := read(t, f.Path); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		}
		if i, err := os.Stat(f.Path); err != nil || i.Mode() != 0o600 {
			t.Errorf("%v, %v", i.Mode(), err)
		}
		if _, err := os.Stat(f.Path + ".new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something is left beside: %v", err)
		}
	}
}

func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	missing := File{Path: filepath.Join(dir, "none", "state")}
	if err := missing.Replace(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	// The name belongs to a folder: what was written is removed again.
	taken := File{Path: filepath.Join(dir, "taken")}
	if err := os.MkdirAll(filepath.Join(taken.Path, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := taken.Replace([]byte("x")); err == nil {
		t.Error("a folder was replaced")
	}
	if _, err := os.Stat(taken.Path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left beside: %v", err)
	}
}

// A full disk keeps the old content, and the space taken by the new one is freed.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: no filesystem can be mounted")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	f := File{Path: filepath.Join(dir, "state")}
	if err := f.Replace([]byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := f.Replace(make([]byte, 1<<20)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := f.Replace(make([]byte, 32<<10)); err != nil {
		t.Errorf("the room is not given back: %v", err)
	}
	if got := len(read(t, f.Path)); got != 32<<10 {
		t.Errorf("%d bytes", got)
	}
}

type value struct {
	Version int    `json:"version,omitempty"`
	Name    string `json:"name"`
}

func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    value
		newer   int // the unknown format
		broken  bool
	}{
		"as it is saved":      {content: `{"version":2,"name":"a"}`, want: value{2, "a"}},
		"of an older form":    {content: `{"version":1,"name":"a"}`, want: value{1, "a"}},
		"of the first form":   {content: `{"name":"a"}`, want: value{0, "a"}},
		"with more":           {content: `{"later":{"version":9},"version":2,"name":"a"}`, want: value{2, "a"}},
		"of a newer form":     {content: `{"version":3,"name":["b"]}`, newer: 3},
		"torn":                {content: `{"version":2,"na`, broken: true},
		"empty":               {content: ``, broken: true},
		"of another type":     {content: `{"version":2,"name":7}`, broken: true},
		"null":                {content: " null\n", broken: true},
		"without any version": {content: `"a"`, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := File{Path: filepath.Join(t.TempDir(), "state.json")}
			if err := os.WriteFile(f.Path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			var got value
			found, err := f.Load(2, &got)
			newer := &NewerError{}
			if errors.As(err, &newer) != (c.newer > 0) || newer.Form != c.newer || !found || (err != nil) != (c.broken || c.newer > 0) {
				t.Fatal(found, err)
			}
			if err == nil {
				if got != c.want {
					t.Errorf("%+v", got)
				}
				return
			}
			if kept := read(t, f.Path+".unread"); kept != c.content {
				t.Errorf("kept is %q", kept)
			}
			if found, err := f.Load(2, &got); found || err != nil {
				t.Error(found, err)
			}
		})
	}
}

// A file that can't be read is reported as an error and not set aside: it may be readable next
// time.
func TestLoadFails(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "folder")}
	if err := os.Mkdir(f.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	if found, err := f.Load(1, &value{}); found || err == nil {
		t.Error(found, err)
	}
	if _, err := os.Stat(f.Path); err != nil {
		t.Error(err)
	}
}

func TestSave(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "state.json"), Max: 12}
	if found, err := f.Load(1, &value{}); found || err != nil {
		t.Fatal(found, err)
	}
	if err := f.Save(value{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(value{Name: "too long"}); err == nil {
		t.Error("a value beyond the bound is saved")
	}
	var got value
	if found, err := f.Load(1, &got); !found || err != nil || got.Name != "a" {
		t.Error(found, got, err)
	}
}
