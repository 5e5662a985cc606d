package artifact

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// diagnoses returns the ids of all diagnoses, ordered by when their last artifact was closed.
func diagnoses(s *Store) []string {
	return slices.SortedFunc(maps.Keys(s.diagnoses), func(a, b string) int {
		if order := s.diagnoses[a].last.Compare(s.diagnoses[b].last); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
}

// whole returns the number of complete artifacts.
func whole(s *Store) (n int) {
	for _, d := range s.diagnoses {
		n += len(d.artifacts)
	}
	return n
}

func begin(t *testing.T, s *Store, id string) *Run {
	t.Helper()
	r, err := s.Begin(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// put creates an artifact.
func put(t *testing.T, r *Run, name string, content []byte) {
	t.Helper()
	w, err := r.create(name, "")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(content); err != nil || n != len(content) {
		t.Fatalf("%d of %d bytes: %v", n, len(content), err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func ofNode3(t *testing.T, r *Run) operation.Artifacts {
	t.Helper()
	a, err := r.Of(3, "")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// filled creates a diagnosis that has ended, with one artifact of n bytes.
func filled(t *testing.T, s *Store, id string, n int) {
	t.Helper()
	r := begin(t, s, id)
	put(t, r, "a", make([]byte, n))
	r.End()
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func read(t *testing.T, s *Store, id, name string) ([]byte, Artifact) {
	t.Helper()
	list := s.List(id)
	i := slices.IndexFunc(list, func(a Artifact) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no %s of %s: %+v", name, id, list)
	}
	b, err := os.ReadFile(list[i].Path(s.cfg.Dir, id))
	if err != nil {
		t.Fatal(err)
	}
	return b, list[i]
}

func TestArtifacts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	s := open(t, Config{Dir: dir})
	r := begin(t, s, "d1")
	content := make([]byte, 300_000)
	_, _ = rand.Read(content)
	w, err := r.create("stacks.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(content, 7000) {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := Read(dir, "d1"); err != nil || len(all) != 0 || len(s.List("d1")) != 0 {
		t.Errorf("it exists for readers before it is closed: %+v, %v", all, err)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	put(t, r, "empty", nil)
	b, a := read(t, s, "d1", "stacks.txt")
	if !bytes.Equal(b, content) || a.Size != 300_000 || a.SHA256 != sum(content) || a.Truncated || a.Time.IsZero() {
		t.Errorf("%+v", a)
	}
	for path, mode := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "d1": fs.ModeDir | 0o700, "d1/stacks.txt": 0o600, "d1/.index": 0o600} {
		if info, err := os.Lstat(filepath.Join(dir, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	before := s.List("d1")
	if len(before) != 2 || before[0].Name != "empty" || before[0].SHA256 != sum(nil) {
		t.Errorf("%+v", before)
	}
	r.End()
	r.End()
	if _, err := r.create("late", ""); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	// The next process finds everything unchanged.
	s = open(t, Config{Dir: dir})
	if d := cmp.Diff(before, s.List("d1")); d != "" {
		t.Error(d)
	}
	if st := s.Stats(); st != (Stats{Bytes: 300_000}) {
		t.Errorf("%+v", st)
	}
	if err := errors.Join(s.Remove("d1"), s.Remove("d1"), s.Remove("none")); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st != (Stats{}) {
		t.Errorf("%+v", st)
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestNames(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	r := begin(t, s, "d")
	for _, name := range []string{"", ".", "..", ".index", "../x", "a/b", "/etc/passwd", "a\x00b", "a\nb", "ä", "-rf", strings.Repeat("x", maxName+1)} {
		if _, err := r.create(name, ""); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
		if _, err := s.Begin(name); err == nil && len(name) <= maxName {
			t.Errorf("%q is taken for a diagnosis", name)
		}
		if all, _ := Read(s.cfg.Dir, name); len(all) > 0 || len(s.List(name)) > 0 {
			t.Errorf("%q has artifacts: %+v", name, all)
		}
	}
	put(t, r, "Stacks-1_b.txt", nil)
	if _, err := r.create("Stacks-1_b.txt", ""); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	w, err := r.create("two", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.create("two", ""); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	_ = w.Close()
	if _, err := s.Begin("d"); !errors.Is(err, ErrRunning) {
		t.Error(err)
	}
	if err := s.Remove("d"); !errors.Is(err, ErrRunning) {
		t.Error(err)
	}
}

// TestSymbolicLinks: somebody who can write to the folder can't redirect writes out of it.
func TestSymbolicLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("untouched"), 0o600), os.Symlink(outside, filepath.Join(dir, "evil")),
		os.Mkdir(filepath.Join(dir, "d"), 0o700), os.Symlink(victim, filepath.Join(dir, "d", ".x.partial")),
		os.Symlink(victim, filepath.Join(dir, "d", ".index")), os.Symlink(victim, filepath.Join(dir, "d", "y"))); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Dir: dir})
	for _, id := range []string{"d", "evil"} {
		r, err := s.Begin(id)
		if err != nil {
			t.Fatal(err)
		}
		w, err := r.create("x", "")
		if err == nil {
			_, _ = w.Write([]byte("written"))
			_ = w.Close()
		} else if id != "evil" {
			t.Error(err)
		}
		r.End()
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "untouched" {
		t.Errorf("%s, %v", b, err)
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("%v", left)
	}
}

func TestBudget(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Budget: 1000})
	s.maxSize = 600
	for i := range 4 { // 800 bytes, the oldest first
		filled(t, s, "old"+strconv.Itoa(i), 200)
	}
	f, err := os.Open(s.List("old0")[0].Path(s.cfg.Dir, "old0"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := begin(t, s, "run")
	put(t, r, "a", make([]byte, 500)) // evicts two others
	if got := diagnoses(s); !slices.Equal(got, []string{"old2", "old3", "run"}) {
		t.Errorf("%v", got)
	}
	if b, err := io.ReadAll(f); err != nil || len(b) != 200 {
		t.Errorf("one that is read is cut off: %d, %v", len(b), err)
	}
	// A diagnosis does not evict its own artifacts.
	w, err := r.create("b", "")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(make([]byte, 600)); n != 500 || !errors.Is(err, operation.ErrArtifactBudget) || !strings.HasSuffix(err.Error(), "at most 1000 bytes in all") {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, operation.ErrArtifactBudget) {
		t.Errorf("%d, %v", n, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if a := s.List("run"); len(a) != 2 || a[1].Size != 500 || !a[1].Truncated || a[1].SHA256 != sum(make([]byte, 500)) {
		t.Errorf("%+v", a)
	}
	if st := s.Stats(); st != (Stats{Bytes: 1000, Evicted: 4, Truncated: 1}) {
		t.Errorf("%+v", st)
	}
	// Once it has ended, its artifacts can be evicted.
	r.End()
	filled(t, s, "next", 1)
	if got := diagnoses(s); !slices.Equal(got, []string{"next"}) {
		t.Errorf("%v", got)
	}
	r = begin(t, s, "size")
	w, err = r.create("big", "")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(make([]byte, 601)); n != 600 || !errors.Is(err, operation.ErrArtifactBudget) || !strings.HasSuffix(err.Error(), "at most 600 bytes each") {
		t.Errorf("%d, %v", n, err)
	}
	_ = w.Close()
}

func TestArtifactsOfANode(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	r := begin(t, s, "d")
	for _, name := range []string{"stacks.txt", "stacks.txt", "plain", "plain", "stacks.txt"} {
		w, err := ofNode3(t, r).Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
	}
	var names []string
	for _, a := range s.List("d") {
		names = append(names, a.Name)
	}
	if d := cmp.Diff([]string{"3-plain", "3-plain-2", "3-stacks-2.txt", "3-stacks-3.txt", "3-stacks.txt"}, names); d != "" {
		t.Error(d)
	}
	if w, err := ofNode3(t, r).Create("../x"); err == nil {
		_ = w.Close()
		t.Error("../x is taken for a name")
	}
}

func TestManyArtifacts(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	r := begin(t, s, "d")
	for i := range maxArtifacts {
		put(t, r, strconv.Itoa(i), nil)
	}
	if _, err := r.create("more", ""); !errors.Is(err, operation.ErrArtifactBudget) || s.Stats().Refused != 1 {
		t.Error(err)
	}
}

// TestOpenDiagnosesAreEvictedLast: artifacts of a diagnosis that waits stay as long as there are
// others to evict.
func TestOpenDiagnosesAreEvictedLast(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Budget: 300, Open: func(id string) bool { return strings.HasPrefix(id, "waits") }})
	for _, c := range []struct{ id, want string }{
		{"waits1", "waits1"}, {"a", "waits1 a"}, {"waits2", "waits1 a waits2"}, {"b", "waits1 waits2 b"}, {"waits3", "waits1 waits2 waits3"}, {"waits4", "waits2 waits3 waits4"},
	} {
		filled(t, s, c.id, 100)
		if got := strings.Join(diagnoses(s), " "); got != c.want {
			t.Errorf("after %s: %s, want %s", c.id, got, c.want)
		}
	}
}

// TestLowerBudget: a lower budget evicts artifacts on Open, the oldest first.
func TestLowerBudget(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	for i := range 5 {
		filled(t, s, strconv.Itoa(i), 100)
	}
	s = open(t, Config{Dir: dir, Budget: 250})
	if got := diagnoses(s); !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("%v", got)
	}
	if st := s.Stats(); st != (Stats{Bytes: 200, Evicted: 3}) {
		t.Errorf("%+v", st)
	}
}

func TestEndDiscardsWhatIsOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	r := begin(t, s, "d")
	w, err := r.create("x", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	r.End()
	if _, err := w.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st != (Stats{Discarded: 1}) {
		t.Errorf("%+v", st)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v", left)
	}
}

// TestConcurrently: budget and figures stay correct under concurrent use.
func TestConcurrently(t *testing.T) {
	const budget = 20_000
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, Budget: budget})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 10 {
				r, err := s.Begin(fmt.Sprintf("d%d-%d", i, j))
				if err != nil {
					t.Error(err)
					return
				}
				var files sync.WaitGroup
				for k := range 3 {
					files.Go(func() {
						w, err := r.create(strconv.Itoa(k), "")
						if err != nil {
							return // discarded already
						}
						for range 10 {
							if _, err := w.Write(make([]byte, 100)); err != nil && !errors.Is(err, operation.ErrArtifactBudget) && !errors.Is(err, fs.ErrClosed) {
								t.Error(err)
							}
							if b := s.Stats().Bytes; b > budget || b < 0 {
								t.Errorf("%d bytes", b)
							}
						}
						_ = w.Close()
					})
				}
				if j%3 > 0 {
					files.Wait()
				}
				r.End() // sometimes with files open
				files.Wait()
			}
		})
	}
	all.Wait()
	onDisk := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != indexFile {
			info, _ := e.Info()
			onDisk += info.Size()
		}
		return nil
	})
	st := s.Stats()
	if st.Bytes != onDisk || st.Bytes > budget || st.Evicted == 0 {
		t.Errorf("%d bytes on disk, %+v", onDisk, st)
	}
	reopened := open(t, Config{Dir: dir, Budget: budget})
	if again := reopened.Stats(); again.Bytes != st.Bytes || whole(reopened) != whole(s) || again.Partial != 0 {
		t.Errorf("%+v, before %+v", again, st)
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("kernosis-test", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := open(t, Config{Dir: dir})
	filled(t, s, "old", 100<<10)
	r := begin(t, s, "run")
	w, err := r.create("a", "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.Write(make([]byte, 200<<10)) // there is room without evicting the old one
	if err != nil || n != 200<<10 {
		t.Fatalf("%d, %v", n, err)
	}
	n, err = w.Write(make([]byte, 100<<10))
	if !errors.Is(err, operation.ErrArtifactBudget) || !errors.Is(err, syscall.ENOSPC) || n == 100<<10 {
		t.Errorf("%d, %v", n, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	st := s.Stats()
	if st.Evicted != 1 || st.Truncated != 1 || st.Bytes != int64(200<<10+n) {
		t.Errorf("%+v", st)
	}
	list := s.List("run")
	if len(list) != 1 || !list[0].Truncated || list[0].Size != st.Bytes {
		t.Errorf("%+v", list)
	}
	if b, _ := read(t, s, "run", "a"); sum(b) != list[0].SHA256 {
		t.Error("another sum than that of what is on disk")
	}
	// If there is no room for the index, it is computed again.
	again := open(t, Config{Dir: dir})
	if l := again.List("run"); len(l) != 1 || l[0].SHA256 != list[0].SHA256 {
		t.Errorf("%+v", l)
	}
	r.End()
	filled(t, s, "next", 50<<10)
	if st := s.Stats(); st.Bytes != 50<<10 || st.Evicted != 2 {
		t.Errorf("%+v", st)
	}
}

func BenchmarkWrite(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir()}, quiet())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	block := make([]byte, 64<<10)
	b.SetBytes(16 << 20)
	for i := 0; b.Loop(); i++ {
		r, err := s.Begin(strconv.Itoa(i))
		if err != nil {
			b.Fatal(err)
		}
		w, err := r.create("a", "")
		if err != nil {
			b.Fatal(err)
		}
		for range 16 << 20 / len(block) {
			if _, err := w.Write(block); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		r.End()
	}
}
