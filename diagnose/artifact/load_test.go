package artifact

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "write-until-killed" {
		os.Exit(writeUntilKilled(os.Args[2]))
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes one artifact and half of another.
func writeUntilKilled(dir string) int {
	s, err := Open(Config{Dir: dir}, quiet())
	if err != nil {
		return 3
	}
	r, err := s.Begin("d")
	if err != nil {
		return 3
	}
	for _, name := range []string{"whole", "half"} {
		w, err := r.create(name, "")
		if err != nil {
			return 3
		}
		if _, err := io.WriteString(w, "content of "+name); err != nil {
			return 3
		}
		if name == "half" {
			break
		}
		if err := w.Close(); err != nil {
			return 3
		}
	}
	_, _ = os.Stdout.WriteString("written\n")
	select {}
}

func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "write-until-killed", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "written\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s := open(t, Config{Dir: dir})
	if st := s.Stats(); st != (Stats{Bytes: 16, Partial: 1}) {
		t.Errorf("%+v", st)
	}
	if b, a := read(t, s, "d", "whole"); string(b) != "content of whole" || a.SHA256 != sum(b) {
		t.Errorf("%s %+v", b, a)
	}
	// The diagnosis resumes, and writes the incomplete artifact again.
	r := begin(t, s, "d")
	put(t, r, "half", []byte("again"))
	if st := s.Stats(); whole(s) != 2 || st.Bytes != 21 {
		t.Errorf("%+v", st)
	}
}

// TestBrokenIndex: what is missing or wrong in the index is computed from the files.
func TestBrokenIndex(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	r := begin(t, s, "d")
	for _, name := range []string{"a", "b", "c"} {
		put(t, r, name, []byte(name))
	}
	want := s.List("d")
	index := filepath.Join(dir, "d", indexFile)
	b, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"gone": "", "torn": string(b[:len(b)-20]), "rubbish": strings.Repeat("{}\nx\n\x00\n", 10), "long": strings.Repeat("x", 1<<20),
		"other size": strings.ReplaceAll(string(b), `"size":1`, `"size":2`), "other": strings.ReplaceAll(string(b), `"name":"`, `"name":"../`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(index, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 { // first computed, then read
				have := open(t, Config{Dir: dir}).List("d")
				if len(have) != len(want) {
					t.Fatalf("%+v", have)
				}
				for i := range have {
					if have[i].Name != want[i].Name || have[i].SHA256 != want[i].SHA256 || have[i].Size != 1 {
						t.Errorf("%+v", have[i])
					}
				}
			}
		})
	}
}

// A line that is too long hides no other.
func TestIndexWithALongLine(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	r := begin(t, s, "d")
	put(t, r, "a", []byte("a"))
	index := filepath.Join(dir, "d", indexFile)
	b, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(index, append([]byte(strings.Repeat("x", 100<<10)+"\n"), b...), 0o600); err != nil {
		t.Fatal(err)
	}
	if known, _ := s.readIndex("d"); known["a"].Size != 1 {
		t.Errorf("got %+v", known)
	}
}

// Whatever an index contains, its entries name files of the diagnosis, and what is added afterwards
// is found.
func FuzzIndex(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	f.Add([]byte("\n{\"name\":\"a\",\"size\":1,\"sha256\":\""+digest+"\",\"time\":\"2026-11-21T12:00:00Z\"}\n"), "b.txt", "")
	f.Add([]byte("\n{\"name\":\"a\",\"folder\":\"/srv/x\",\"sha256\":\""+digest+"\"}\n{\"folder\":\"/srv/y\"}\n{\"name\":\"to"), "a", "/srv/x")
	f.Add([]byte("{\"name\":\"../a\",\"folder\":\"../x\",\"size\":-1,\"sha256\":\""+strings.Repeat("x", 64)+"\"}\nnull\n\x00"), "", "/")
	dir := f.TempDir()
	root, err := os.OpenRoot(dir)
	if err == nil {
		err = root.Mkdir("d", 0o700)
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = root.Close() })
	s := &Store{root: root, log: quiet()}
	f.Fuzz(func(t *testing.T, index []byte, name, folder string) {
		if err := root.WriteFile("d/"+indexFile, index, 0o600); err != nil {
			t.Fatal(err)
		}
		known, _ := s.readIndex("d")
		for name, a := range known {
			if sum, err := hex.DecodeString(a.SHA256); name != a.Name || checkName(name) != nil || a.Size < 0 || err != nil || len(sum) != 32 {
				t.Errorf("%q: %+v", index, a)
			}
		}
		added := Artifact{Name: "x" + name, Size: 7, SHA256: digest, Time: time.Unix(1795000000, 5).UTC(), Truncated: true, Folder: folder}
		if checkName(added.Name) != nil || !utf8.ValidString(folder) {
			return
		}
		if err := s.addToIndex("d", added); err != nil {
			t.Fatal(err)
		}
		known[added.Name] = added
		again, in := s.readIndex("d")
		if diff := cmp.Diff(known, again); diff != "" || folder != "" && !slices.Contains(in, folder) {
			t.Errorf("%q, folders %q (-want +got):\n%s", index, in, diff)
		}
	})
}

func TestOpenLeavesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Mkdir(filepath.Join(dir, ".hidden"), 0o700),
		os.MkdirAll(filepath.Join(dir, "d", "sub"), 0o700), os.WriteFile(filepath.Join(dir, "d", "a"), []byte("1"), 0o600),
		os.Mkdir(filepath.Join(dir, "empty"), 0o700), os.MkdirAll(filepath.Join(dir, "other", "sub"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if st := open(t, Config{Dir: dir}).Stats(); st != (Stats{Bytes: 1}) {
		t.Errorf("%+v", st)
	}
	for _, p := range []string{"file", ".hidden", "d/sub", "d/a", "other/sub"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "empty")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an empty folder stays")
	}
}

func TestOpenWhereItCannot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{Dir: file}, {Dir: "/no/such/dir"}, {Dir: t.TempDir(), Budget: -1}} {
		if s, err := Open(cfg, quiet()); err == nil {
			_ = s.Close()
			t.Errorf("%+v opens", cfg)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	f.Add("a.txt")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, name string) {
		if checkName(name) == nil && (filepath.Base(name) != name || name == "." || name == ".." || strings.HasPrefix(name, ".")) {
			t.Errorf("%q", name)
		}
	})
}

// A run whose files can't be read does not cost those of other runs.
func TestOpenSkipsAnUnreadableRun(t *testing.T) {
	dir, storage := filepath.Join(t.TempDir(), "artifacts"), t.TempDir()
	config := Config{Dir: dir, Storage: storage}
	s := open(t, config)
	keep(t, begin(t, s, "d1"), "x", "a.txt", []byte("lost"))
	put(t, begin(t, s, "d2"), "b.txt", []byte("here"))
	if err := errors.Join(s.Close(), os.RemoveAll(filepath.Join(storage, "x", "d1")), os.WriteFile(filepath.Join(storage, "x", "d1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = open(t, config)
	if list := s.List("d2"); len(list) != 1 || list[0].Name != "b.txt" {
		t.Errorf("%+v", list)
	}
	if st := s.Stats(); st.Bytes != 4 || len(diagnoses(s)) != 1 {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(dir, "d1", indexFile)); err != nil {
		t.Error(err)
	}
}
