package detector_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kernosis/kernosis/detector"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The digest changes if and only if something changes that is read as rules.
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
