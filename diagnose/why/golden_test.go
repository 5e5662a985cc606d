package why_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/docs/problems"
)

var update = flag.Bool("update", false, "write the outputs of testdata anew")

// TestGolden compares answers with reviewed ones. Each file of testdata has an input and its
// answer, as text 100 cells wide and optionally as JSON.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := false
			var in why.Input
			for i := range archive.Files {
				f := &archive.Files[i]
				var got []byte
				switch f.Name {
				case "input.yaml":
					in = input(t, f.Data)
					continue
				case "answer.txt":
					got = text(t, why.Build(in), 100)
				case "answer.json":
					var b bytes.Buffer
					e := json.NewEncoder(&b)
					e.SetEscapeHTML(false)
					e.SetIndent("", "  ")
					if err := e.Encode(why.Build(in)); err != nil {
						t.Fatal(err)
					}
					got = b.Bytes()
				default:
					t.Fatalf("file %q", f.Name)
				}
				if bytes.Equal(got, f.Data) {
					continue
				}
				if !*update {
					t.Errorf("%s is\n%s\nwant\n%s", f.Name, got, f.Data)
				}
				f.Data, changed = got, true
			}
			if changed && *update {
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func input(t *testing.T, raw []byte) why.Input {
	t.Helper()
	var in why.Input
	if err := yaml.UnmarshalStrict(raw, &in); err != nil {
		t.Fatal(err)
	}
	in.Now = in.Now.In(time.UTC)
	in.Since = time.Hour
	in.Advice = problems.Advice
	return in
}

// text returns what a terminal with this many cells shows, and the outcome.
func text(t *testing.T, a *why.Answer, cells int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := a.WriteText(&b, why.View{Cells: cells}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "# %s\n", a.Outcome)
	return b.Bytes()
}

// A styled label takes no extra room: text and alignment stay the same.
func TestPaintedLabels(t *testing.T) {
	a := &why.Answer{Causes: []why.Cause{{Reason: "OOMKilling", Message: "OOMKilling: killed at its limit of 24 MiB by another process of its pod"}}}
	var plain, painted bytes.Buffer
	label := func(label string) string {
		if label == "CAUSE" {
			return "\x1b[31m" + label + "\x1b[0m"
		}
		return label
	}
	if err := errors.Join(a.WriteText(&plain, why.View{Cells: 40}), a.WriteText(&painted, why.View{Cells: 40, Label: label})); err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(painted.String(), "\x1b[31mCAUSE\x1b[0m", "CAUSE"); got != plain.String() || got == painted.String() {
		t.Errorf("%q\nwant %q", got, plain.String())
	}
}
