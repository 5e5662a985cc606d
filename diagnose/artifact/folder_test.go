package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keep creates an artifact of a node in an operation's folder.
func keep(t *testing.T, r *Run, folder, name string, content []byte) {
	t.Helper()
	a, err := r.Of(1, folder)
	if err != nil {
		t.Fatal(err)
	}
	w, err := a.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func missing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

func TestAnOperationsFolder(t *testing.T) {
	dir, storage := filepath.Join(t.TempDir(), "artifacts"), filepath.Join(t.TempDir(), "storage")
	config := Config{Dir: dir, Storage: storage, Budget: 100}
	s := open(t, config)
	r := begin(t, s, "d1")
	keep(t, r, "db/dumps", "a.txt", []byte("hello"))
	keep(t, r, filepath.Join(storage, "db"), "b.txt", []byte("absolute"))
	put(t, r, "c.txt", []byte("with the others"))
	if err := os.WriteFile(filepath.Join(storage, "db", "theirs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{
		"": fs.ModeDir | 0o700, "db": fs.ModeDir | 0o700, "db/dumps/d1": fs.ModeDir | 0o700, "db/dumps/d1/1-a.txt": 0o600, "db/d1/1-b.txt": 0o600,
	} {
		if info, err := os.Lstat(filepath.Join(storage, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
	half, err := r.Of(2, "db/dumps")
	if err != nil {
		t.Fatal(err)
	}
	w, err := half.Create("half")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	// The agent is killed. The next one finds all artifacts, and removes the incomplete one.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, config)
	if st := s.Stats(); st.Bytes != 5+8+15 || whole(s) != 3 || st.Partial != 1 {
		t.Errorf("%+v", st)
	}
	if b, a := read(t, s, "d1", "1-a.txt"); string(b) != "hello" || a.Path(dir, "d1") != filepath.Join(storage, "db/dumps/d1/1-a.txt") {
		t.Errorf("%q %+v", b, a)
	}
	seen, err := Read(dir, "d1")
	if err != nil || len(seen) != 3 || seen[0].Folder != filepath.Join(storage, "db/dumps") || seen[2].Folder != "" {
		t.Errorf("%+v, %v", seen, err)
	}
	// The budget covers both folders, and an evicted diagnosis is removed from all of them.
	filled(t, s, "d2", 90)
	missing(t, filepath.Join(storage, "db/dumps/d1"))
	missing(t, filepath.Join(storage, "db/d1"))
	missing(t, filepath.Join(dir, "d1"))
	if _, err := os.Lstat(filepath.Join(storage, "db", "theirs")); err != nil {
		t.Error(err)
	}
	r = begin(t, s, "d3")
	keep(t, r, "db", "big", make([]byte, 95))
	r.End()
	if st := s.Stats(); st.Bytes != 95 || st.Evicted != 4 {
		t.Errorf("%+v", st)
	}
	if err := s.Remove("d3"); err != nil {
		t.Error(err)
	}
	missing(t, filepath.Join(storage, "db/d3"))
}

// Nothing is written outside of the node's storage folder.
func TestHostileFolders(t *testing.T) {
	outside, base := t.TempDir(), t.TempDir()
	dir, storage := filepath.Join(base, "artifacts"), filepath.Join(base, "storage")
	s := open(t, Config{Dir: dir, Storage: storage})
	if err := os.Symlink(outside, filepath.Join(storage, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".", filepath.Join(storage, "in")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(storage, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := begin(t, s, "d1")
	for folder, want := range map[string]string{
		"../artifacts":            "want letters",
		"a/../../artifacts":       "want letters",
		"/etc/cron.d":             "/etc/cron.d is a system folder",
		"//etc":                   "is a system folder",
		"/":                       "/ is a system folder",
		"/var/lib/kubelet/pods":   "is a system folder",
		"/srv/x":                  "/srv/x is not below " + storage,
		storage + "-2":            "is not below",
		dir:                       "is not below",
		storage + "/../artifacts": "want letters",
		".ssh":                    "want letters",
		"a\x00b":                  "want letters",
		"a\nb":                    "want letters",
		strings.Repeat("a", 256):  "want letters",
		"out":                     "out is a symbolic link",
		"out/deeper":              "out is a symbolic link",
		"in/a":                    "in is a symbolic link",
		"file":                    "file is a symbolic link or a file",
	} {
		if a, err := r.Of(1, folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", folder, a, err, want)
		}
	}
	// A link that replaces the folder later leads nowhere, either.
	a, err := r.Of(1, "later")
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(storage, "later")), os.Symlink(outside, filepath.Join(storage, "later")))
	}
	if err != nil {
		t.Fatal(err)
	}
	if w, err := a.Create("a.txt"); err == nil {
		t.Errorf("%+v", w)
	}
	r.End()
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	// The index stays, because it names the folder that is a link now.
	if entries, err := os.ReadDir(filepath.Join(dir, "d1")); err != nil || len(entries) != 1 || entries[0].Name() != indexFile {
		t.Errorf("%v, %v", entries, err)
	}
}

// A store that can't open an operation's folder stores nothing there, and does not forget files
// that another store has there: the index stays.
func TestAnOperationsFolderThatIsNotThere(t *testing.T) {
	dir, storage := filepath.Join(t.TempDir(), "artifacts"), filepath.Join(t.TempDir(), "storage")
	s := open(t, Config{Dir: dir, Storage: storage})
	r := begin(t, s, "d1")
	keep(t, r, ".", "a.txt", []byte("hello"))
	put(t, r, "b.txt", []byte("b"))
	r.End()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if st := s.Stats(); st.Bytes != 1 {
		t.Errorf("%+v", st)
	}
	a, err := begin(t, s, "d2").Of(1, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create("x"); err == nil || !strings.Contains(err.Error(), "no folder for results") {
		t.Error(err)
	}
	if err := s.Remove("d1"); err == nil {
		t.Error("it says that all is removed")
	}
	missing(t, filepath.Join(dir, "d1", "b.txt"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir, Storage: storage})
	if b, a := read(t, s, "d1", "1-a.txt"); string(b) != "hello" || a.Path(dir, "d1") != filepath.Join(storage, "d1", "1-a.txt") {
		t.Errorf("%q %+v", b, a)
	}
	if err := s.Remove("d1"); err != nil {
		t.Error(err)
	}
	missing(t, filepath.Join(storage, "d1"))
	missing(t, filepath.Join(dir, "d1"))
}
