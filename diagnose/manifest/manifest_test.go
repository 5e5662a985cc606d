package manifest_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

func newReader(tb testing.TB) *manifest.Reader {
	tb.Helper()
	r, err := manifest.NewReader()
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// diagnose/api/v1alpha1 checks the same manifests against the API server.
func TestManifestsAreRefusedAsTheServerDoes(t *testing.T) {
	r := newReader(t)
	for _, test := range apitest.Cases(t) {
		t.Run(test.Name, func(t *testing.T) {
			_, err := r.Parse(document.File{Name: "f.yaml", Data: []byte(test.Text)})
			if test.Accepted() {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var errs document.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("have %v", err)
			}
			if !slices.ContainsFunc(errs, func(e *document.Error) bool {
				return e.Field == test.Field && strings.Contains(e.Msg, test.Message) && e.Line > 0
			}) {
				t.Errorf("want %s: %s\nhave %v", test.Field, test.Message, err)
			}
		})
	}
}

var update = flag.Bool("update", false, "write what is reported into testdata")

// Each file of the archive is a manifest; its lines that begin with "# want " are the expected
// messages, in order.
func TestMistakesAreReportedWithTheirPlaces(t *testing.T) {
	const path = "testdata/mistakes.txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t)
	for i := range archive.Files {
		f := &archive.Files[i]
		t.Run(f.Name, func(t *testing.T) {
			var text, want strings.Builder
			for line := range strings.Lines(string(f.Data)) {
				if w, ok := strings.CutPrefix(line, "# want "); ok {
					want.WriteString(w)
				} else {
					text.WriteString(line)
				}
			}
			_, err := r.Parse(document.File{Name: "f.yaml", Data: []byte(text.String())})
			if err == nil {
				t.Fatal("accepted")
			}
			for line := range strings.Lines(err.Error() + "\n") {
				text.WriteString("# want " + line)
			}
			f.Data = []byte(text.String())
			if diff := cmp.Diff(want.String(), err.Error()+"\n"); diff != "" && !*update {
				t.Error(diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	examples, err := os.ReadFile("testdata/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a.yaml":      string(examples),
		"b.json":      `{"apiVersion": "kernosis.io/v1alpha1", "kind": "Operation", "metadata": {"name": "probe"}, "spec": {"processor": {"httpServer": {"port": 8080}}}}`,
		"README":      "no manifest",
		".#a.yaml":    "an editor's",
		"old/c.yaml":  "of a folder within",
		"d.yml":       "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: kernosis.io/v1alpha1, kind: RemediationPolicy, metadata: {name: batch}, status: {whatever: it, has: [been]}}\n",
		"e.yaml":      "---\n# nothing but this\n---\n",
		"scalar.yaml": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := strings.NewReader("apiVersion: kernosis.io/v1alpha1\nkind: Diagnosis\nmetadata: {name: by-hand}\nspec: {operationSet: hung-task, nodeName: n7}\n")
	s, err := manifest.Load([]string{dir, "-"}, in)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Operations) != 2 || len(s.OperationSets) != 1 || len(s.Triggers) != 1 || len(s.Diagnoses) != 2 || len(s.RemediationPolicies) != 2 {
		t.Errorf("%d operations, %d sets, %d triggers, %d diagnoses, %d policies",
			len(s.Operations), len(s.OperationSets), len(s.Triggers), len(s.Diagnoses), len(s.RemediationPolicies))
	}
	probe := s.Operation("probe")
	if probe == nil || s.Operation("prober") != nil || s.OperationSet("hung-task") == nil {
		t.Fatalf("operation %v", probe)
	}
	server := probe.Spec.Processor.HTTPServer
	if server.Address != "127.0.0.1" || server.Scheme != "http" || server.Path != "/" || probe.Spec.Processor.TimeoutSeconds != v1alpha1.DefaultTimeoutSeconds {
		t.Errorf("defaults are not filled in: %+v, %+v", server, probe.Spec.Processor)
	}
	policy := s.RemediationPolicies[1].Spec
	if policy.Mode != v1alpha1.ModeObserve || *policy.Budget.MaxNodes != 1 || policy.VerifyWithin.Duration != 5*time.Minute {
		t.Errorf("defaults are not filled in: %+v", policy)
	}
	set := s.OperationSet("hung-task")
	for field, want := range map[string]string{
		"spec.adjacencyList[2].operation": dir + "/a.yaml:8:13: spec.adjacencyList[2].operation: no such Operation",
		"spec.adjacencyList[3].to":        dir + "/a.yaml:9:5: spec.adjacencyList[3].to: no such Operation",
	} {
		if have := s.At(set, field, "no such %s", "Operation").Error(); have != want {
			t.Errorf("have %s\nwant %s", have, want)
		}
	}
	if have := s.At(probe, "spec.effect", "why").Error(); have != dir+"/b.json:1:100: spec.effect: why" {
		t.Error(have)
	}
}

func TestLoadReportsWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large.yaml"), make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):       "none: no such file or directory",
		filepath.Join(dir, "large.yaml"): "large.yaml: larger than 4194304 bytes",
		t.TempDir():                      "no .yaml, .yml or .json files found",
	} {
		if _, err := manifest.Load([]string{path}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, have %v", want, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	r := newReader(f)
	for _, test := range apitest.Cases(f) {
		if len(test.Text) < 2000 {
			f.Add([]byte(test.Text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := r.Parse(document.File{Name: "f.yaml", Data: data})
		var errs document.Errors
		if err != nil && (!errors.As(err, &errs) || err.Error() == "") {
			t.Fatalf("%v", err)
		}
		if err == nil && s == nil {
			t.Fatal("nothing and no error")
		}
	})
}
