package kernel

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/lint"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestShippedPatternsAreOfSomeKernel requires that each shipped pattern matches a line that a
// format string in some kernel of the matrix prints. A pattern whose words are in no kernel is
// dead, unless testdata/kernellines.yaml says why it is not.
func TestShippedPatternsAreOfSomeKernel(t *testing.T) {
	testenv.OnlyInTestAll(t)
	data, err := os.ReadFile("../../detector/testdata/kernellines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Lines  []struct{ Rule, Text, Absent string }
		Absent map[string]string
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	examples := ruleTests(t)
	for _, l := range file.Lines {
		examples = append(examples, l.Text)
	}
	f := formats(t, examples)

	elsewhere := file.Absent
	if elsewhere == nil {
		elsewhere = make(map[string]string)
	}
	for _, l := range file.Lines {
		switch printed := f.Print(l.Text); {
		case l.Absent == "" && !printed:
			t.Errorf("rule %s: no kernel prints %q; correct the line, or say under absent why none does", l.Rule, l.Text)
		case l.Absent != "" && printed:
			t.Errorf("rule %s: a kernel prints %q; take absent away", l.Rule, l.Text)
		case l.Absent != "":
			elsewhere[l.Rule] = l.Absent
		}
	}
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range set.Rules() {
		if r.Pattern == "" || elsewhere[r.Name] != "" {
			continue
		}
		re := regexp.MustCompile(r.Pattern)
		if !slices.ContainsFunc(examples, func(l string) bool { return re.MatchString(l) && f.Print(l) }) {
			t.Errorf("rule %s: no kernel of the matrix prints any of the lines that it is tested with", r.Name)
		}
	}
}

func formats(t *testing.T, lines []string) *lint.Formats {
	t.Helper()
	f, err := lint.ReadFormats(matrixStrings(t), lines)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// matrixStrings reads the strings of all kernels of the matrix that are fetched.
func matrixStrings(t *testing.T) io.Reader {
	t.Helper()
	dir, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	matrix, err := ReadMatrix("../kernels.txt")
	if err != nil {
		t.Fatal(err)
	}
	var files []io.Reader
	var missing []string
	for _, k := range matrix {
		if _, err := os.Stat(filepath.Join(dir, "kernels", k.Name, "manifest.json")); err != nil {
			// The oldest one, the newest one and the one with the most drivers are required: the
			// others are in between.
			if slices.Contains([]string{"5.10", "newest-generic", "rc"}, k.Name) {
				missing = append(missing, k.Name)
			}
			continue
		}
		img, err := Open(dir, k.Name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(kernelStrings(t, img))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	if len(missing) > 0 {
		text := "kernels to compare with are not fetched: " + strings.Join(missing, ", ") + "; run make patterns"
		if os.Getenv("KERNOSIS_PATTERNS") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return io.MultiReader(files...)
}

// ruleTests returns the lines in the shipped rules' tests.
func ruleTests(t *testing.T) (out []string) {
	t.Helper()
	names, err := fs.Glob(detector.Shipped(), "klog-*_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(detector.Shipped(), name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []struct {
				Events []struct {
					Event struct{ Log struct{ Text string } }
				}
			}
		}
		if err := yaml.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		for _, test := range file.Tests {
			for _, e := range test.Events {
				if text := e.Event.Log.Text; text != "" && !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	return out
}
