package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Links lead where they lead on the node.
func TestReadFile(t *testing.T) {
	f := New(filepath.Join(t.TempDir(), "host"))
	if _, err := f.ReadFile("/etc/plain", 10); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "root "+f.root) {
		t.Errorf("without the root: %v", err)
	}
	if err := errors.Join(os.MkdirAll(f.Path("/etc"), 0o755), os.Mkdir(f.Path("/run"), 0o755), unix.Mkfifo(f.Path("/etc/pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/run/file", "of the node")
	for name, target := range map[string]string{
		"absolute": "/run/file", "relative": "../run/file", "twice": "/etc/absolute", "above": "../../../run/file", "outside": "../../file", "loop": "/etc/loop",
	} {
		if err := os.Symlink(target, f.Path("/etc/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.root, "../file"), []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/run/file", "/etc/absolute", "/etc/relative", "/etc/twice", "/etc/above", "/../run/file"} {
		if b, err := f.ReadFile(p, 11); err != nil || string(b) != "of the node" {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	if b, err := f.ReadFile("/etc/absolute", 6); err != nil || string(b) != "of the" {
		t.Errorf("at most 6 bytes: %q, %v", b, err)
	}
	for p, want := range map[string]error{"/etc/none": fs.ErrNotExist, "/etc/outside": fs.ErrNotExist, "/etc/loop": unix.ELOOP} {
		if b, err := f.ReadFile(p, 10); !errors.Is(err, want) || !strings.Contains(err.Error(), f.Path(p)) {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	if b, err := f.ReadFile("/etc/pipe", 10); err != nil || len(b) != 0 {
		t.Errorf("a pipe: %q, %v", b, err)
	}
	if b, err := New("/").ReadFile(f.Path("/run/file"), 100); err != nil || string(b) != "of the node" {
		t.Errorf("of the real root: %q, %v", b, err)
	}
}
