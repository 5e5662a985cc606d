package hostfs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	before := openFiles()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if after := openFiles(); after > before {
			fmt.Fprintf(os.Stderr, "leaked file descriptors: %d before, %d after\n", before, after)
			code = 1
		}
	}
	os.Exit(code)
}

// openFiles counts descriptors but those of the Go runtime's poller, which it
// opens at the first need and keeps.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			n++
		}
	}
	return n
}

// fixtures are the trees in testdata, by kernel and layout.
var fixtures = []string{"6.12-systemd-v2", "6.18-hybrid"}

// fixture copies testdata/<name> to a temporary root and makes the symbolic
// links listed in its file "links", whose names (259:2) a Go module can't hold.
func fixture(t testing.TB, name string) FS {
	t.Helper()
	root, src := t.TempDir(), filepath.Join("testdata", name)
	if err := os.CopyFS(root, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	// A copy may be changed by its test, wherever the sources came from.
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(p, 0o644)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(src, "links"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		link, target, _ := strings.Cut(strings.TrimSpace(line), " ")
		p := filepath.Join(root, link)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			t.Fatal(err)
		}
	}
	return New(root)
}

func write(t testing.TB, f FS, p, content string) {
	t.Helper()
	if err := os.WriteFile(f.Path(p), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
