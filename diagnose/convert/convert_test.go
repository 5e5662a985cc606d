package convert_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/convert"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// Each archive has a KubeDiag file (in.yaml), the converted file (out.yaml), and the messages about
// it (reported).
func TestConvert(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := make(map[string]string)
			for _, f := range archive.Files {
				files[f.Name] = string(f.Data)
			}
			out, reported := convertText(t, []byte(files["in.yaml"]))
			if *update {
				archive.Files = []txtar.File{archive.Files[0], {Name: "out.yaml", Data: []byte(out)}, {Name: "told", Data: []byte(reported)}}
				if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(files["out.yaml"], out); diff != "" {
				t.Errorf("out.yaml: %s", diff)
			}
			if diff := cmp.Diff(files["told"], reported); diff != "" {
				t.Errorf("reported: %s", diff)
			}
		})
	}
}

// convertText returns the output, and the findings, one per line.
func convertText(t *testing.T, text []byte) (out, reported string) {
	t.Helper()
	reader, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	r, err := convert.Convert(reader, document.File{Name: "in.yaml", Data: text})
	var errs document.Errors
	switch {
	case errors.As(err, &errs):
		return "", err.Error() + "\n"
	case err != nil:
		t.Fatal(err)
	}
	var b strings.Builder
	lost := false
	for _, f := range r.Findings {
		b.WriteString(f.String() + "\n")
		lost = lost || f.Lost
	}
	if lost != r.Lost() {
		t.Error("Lost")
	}
	return string(r.YAML), b.String()
}

func TestEachProcessorOfTheAgentIsKnown(t *testing.T) {
	// From pkg/processors/register/register.go of KubeDiag.
	for _, name := range []string{
		"podListCollector", "podDetailCollector", "containerCollector", "processCollector", "dockerInfoCollector",
		"dockerdGoroutineCollector", "containerdGoroutineCollector", "mountInfoCollector", "elasticsearchCollector",
		"statefulsetDetailCollector", "nodeCordon", "coreFileProfiler", "goProfiler", "tcpdumpProfiler",
		"subpathRemountDiagnoser", "subpathRemountRecover", "statefulsetStuck", "sonobuoyResultDiagnoser",
	} {
		_, reported := convertText(t, []byte("apiVersion: diagnosis.kubediag.org/v1\nkind: Operation\nmetadata: {name: a}\nspec: {processor: {path: /processor/"+name+"}}\n"))
		if !strings.Contains(reported, name+" of KubeDiag's agent ") {
			t.Errorf("%s: %s", name, reported)
		}
	}
}

// The output is always valid, and no input makes the program panic.
func FuzzConvert(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for part := range bytes.SplitSeq(archive.Files[0].Data, []byte("---\n")) {
			f.Add(part)
		}
	}
	reader, err := manifest.NewReader()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := convert.Convert(reader, document.File{Name: "in.yaml", Data: data})
		if err != nil {
			if !errors.As(err, new(document.Errors)) || err.Error() == "" {
				t.Fatal(err)
			}
			return
		}
		if len(r.YAML) > 0 {
			_, err = reader.Parse(document.File{Name: "out.yaml", Data: r.YAML})
		}
		// Each object is valid by itself; duplicate names come from the input.
		if err != nil && !strings.Contains(err.Error(), " already") {
			t.Fatalf("%v\n%s", err, r.YAML)
		}
		for _, f := range r.Findings {
			if f.Reason == "" || f.Document < 1 || strings.ContainsAny(f.String(), "\n\x1b") {
				t.Fatalf("%q", f.String())
			}
		}
	})
}
