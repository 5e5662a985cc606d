package artifact

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Read returns complete artifacts, and leaves alone what another process is writing.
func TestReadChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	r := begin(t, s, "d1")
	put(t, r, "a.txt", []byte("hello"))
	w, err := r.create("half.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d1", "foreign.txt"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(filepath.Join(dir, "d1"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, "d1")
	want := []Artifact{{Name: "a.txt", Size: 5, SHA256: sum([]byte("hello"))}, {Name: "foreign.txt", Size: 3}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Artifact{}, "Time")); diff != "" || err != nil {
		t.Error(diff, err)
	}
	after, err := os.ReadDir(filepath.Join(dir, "d1"))
	if err != nil || len(after) != len(before) {
		t.Errorf("%v, before %v, %v", after, before, err)
	}
	for _, id := range []string{"d2", "d3"} {
		if got, err := Read(dir, id); len(got) != 0 || err != nil {
			t.Error(got, err)
		}
	}
	if got, err := Read(filepath.Join(dir, "missing"), "d1"); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
	if _, err := Read(dir, "../d1"); err == nil {
		t.Error("a path is taken for an id")
	}
}
