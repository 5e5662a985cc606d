package hostfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.CheckLeaks(m.Run))
}

// fixtures are the trees in testdata, by kernel and layout.
var fixtures = []string{"6.12-systemd-v2", "6.18-hybrid"}

// fixture copies testdata/<name> to a temporary root and creates the symbolic links listed in its
// file "links", whose names (259:2) a Go module can't contain.
func fixture(t testing.TB, name string) FS {
	t.Helper()
	root, src := t.TempDir(), filepath.Join("testdata", name)
	if err := os.CopyFS(root, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	// The test may change its copy, even if the sources are read-only.
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
