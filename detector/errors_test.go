package detector_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/detector"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestErrors loads the rule files of each archive; its "errors" member is the
// error that Load must return. Files under over/ are a second layer.
func TestErrors(t *testing.T) {
	paths, err := filepath.Glob("testdata/errors/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no archives", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			base, over := fstest.MapFS{}, fstest.MapFS{}
			golden := -1
			for i, f := range archive.Files {
				switch name, isOver := strings.CutPrefix(f.Name, "over/"); {
				case f.Name == "errors":
					golden = i
				case isOver:
					over[name] = &fstest.MapFile{Data: f.Data}
				default:
					base[f.Name] = &fstest.MapFile{Data: f.Data}
				}
			}
			_, err = detector.Load(base, over)
			have := []byte(nil)
			if err != nil {
				have = []byte(err.Error() + "\n")
				if es := (detector.Errors)(nil); !errors.As(err, &es) {
					t.Errorf("error is a %T, want detector.Errors", err)
				}
			}
			if *update {
				if golden < 0 {
					golden = len(archive.Files)
					archive.Files = append(archive.Files, txtar.File{Name: "errors"})
				}
				archive.Files[golden].Data = have
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if golden < 0 || !bytes.Equal(have, archive.Files[golden].Data) {
				t.Errorf("have\n%s\nwant\n%s", have, archive.Files[golden].Data)
			}
		})
	}
}

func TestLoadReadErrors(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	if _, err := detector.LoadDir(absent); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent) {
		t.Errorf("absent directory: %v, want fs.ErrNotExist", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("rules: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := detector.LoadDir(dir)
	if err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "bad.yaml")+":") {
		t.Errorf("have %v, want the path of the file first", err)
	}
}

func TestLoadBounds(t *testing.T) {
	big := append([]byte("apiVersion: rules.kernosis.io/v1\n"), bytes.Repeat([]byte("#"), 1<<20)...)
	for name, data := range map[string][]byte{
		"file has":     big,
		"not UTF-8":    []byte("apiVersion: \xff"),
		"is empty":     nil,
		"more than 10": []byte("apiVersion: rules.kernosis.io/v1\nrules:\n" + strings.Repeat("- {}\n", 1001)),
	} {
		_, err := detector.Load(fstest.MapFS{"a.yaml": &fstest.MapFile{Data: data}})
		if name == "more than 10" {
			// 1,001 rules without a name give many mistakes before the limit of
			// rules is reached; the list of mistakes is bounded as well.
			if err == nil || strings.Count(err.Error(), "\n") > 110 {
				t.Errorf("unbounded list of mistakes")
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("have %.200v, want %q", err, name)
		}
	}
}
