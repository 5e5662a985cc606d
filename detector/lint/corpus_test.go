package lint_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/detector/lint"
)

func shipped(t *testing.T) *lint.Corpus {
	t.Helper()
	c, err := lint.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEachKernelReportsOfEachFault checks that the forms of a fault cover all kernels:
// in a gap between two forms, a dead pattern would not be found.
func TestEachKernelReportsOfEachFault(t *testing.T) {
	newer := []string{"hung task's lock"} // not reported before 6.16
	for _, f := range shipped(t).Faults {
		if len(f.Forms) == 0 {
			t.Errorf("%s has no forms", f.Name)
		}
		if slices.Contains(newer, f.Name) {
			continue
		}
		for _, version := range []string{"5.4", "5.10", "5.15", "5.16", "5.17", "6.1", "6.4", "6.5", "6.6", "6.7", "6.8", "6.9", "6.10", "6.12", "6.13", "6.18", "7.0", "7.1", "7.2", "7.3"} {
			k, err := lint.ParseKernels(version)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(f.Forms, func(form lint.Form) bool { return form.Arch != "arm64" && form.Of(k) }) {
				t.Errorf("%s: no form for kernel %s", f.Name, version)
			}
		}
	}
}

// TestSeenLinesAreInTheLog compares forms with the log they were taken from. Names and
// numbers may differ.
func TestSeenLinesAreInTheLog(t *testing.T) {
	data, err := os.ReadFile("../../collector/logpattern/testdata/faults-6.18.log")
	if err != nil {
		t.Fatal(err)
	}
	log := strings.Split(string(data), "\n")
	variable := regexp.MustCompile(`\\\{\w+\\\}|[0-9a-f]*[0-9]+[0-9a-f]*|/kubepods\S*?(,|$)|(test|inject)$`)
	seen := 0
	for _, f := range shipped(t).Faults {
		for _, form := range f.Forms {
			if form.Seen != "6.18" {
				continue
			}
			seen++
			for _, line := range form.Lines {
				expr := variable.ReplaceAllString(regexp.QuoteMeta(line), `.+`)
				if !slices.ContainsFunc(log, regexp.MustCompile("^"+expr).MatchString) {
					t.Errorf("%s: no line of the log is %s", f.Name, expr)
				}
			}
		}
	}
	if seen < 6 {
		t.Errorf("%d forms were seen, there are more in the log", seen)
	}
}

func TestCorpusMistakes(t *testing.T) {
	_, err := lint.ParseCorpus("c.yaml", []byte(`faults:
- forms:
  - {from: "6", lines: []}
- {name: x, form: []}
renamed: [{name: a}]
`))
	want := `c.yaml:2:3: faults[0]: name is missing
c.yaml:3:12: faults[0].forms[0].from: kernel "6": want major.minor, such as 6.12
c.yaml:3:24: faults[0].forms[0].lines: is empty
c.yaml:4:3: faults[1]: forms is missing
c.yaml:4:13: faults[1]: unknown key "form", did you mean "forms"?
c.yaml:5:11: renamed[0]: now is missing
c.yaml:5:11: renamed[0]: since is missing`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestKernels(t *testing.T) {
	for in, want := range map[string]string{
		"6.1": "6.1", "5.4-7.3": "5.4 to 7.3",
		"6": `kernel "6": want major.minor, such as 6.12`, "7.0-6.1": `kernels "7.0-6.1": 7.0 comes after 6.1`,
		"": `kernel "": want major.minor, such as 6.12`,
	} {
		k, err := lint.ParseKernels(in)
		got := k.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// A corpus is refused with the place of each mistake, or each form has lines, and kernels that log it.
func FuzzParseCorpus(f *testing.F) {
	raw, err := os.ReadFile("corpus.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("faults: [{name: a, forms: [{from: \"6.1\", to: \"5.10\", lines: [b]}]}]\nvalues: {dev: sda}\nrenamed: [{name: a, now: b, since: \"6.1\"}]"))
	f.Add([]byte("faults: [{name: \"\", forms: []}, {name: a, forms: [{lines: [\"\", a]}]}]\nhealthy: [1, null]"))
	mistake := regexp.MustCompile(`^c\.yaml(:\d+(:\d+)?)?: .`)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := lint.ParseCorpus("c.yaml", data)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if c != nil || !mistake.MatchString(line) {
					t.Errorf("%q: %q", data, line)
				}
			}
			return
		}
		for _, fault := range c.Faults {
			if fault.Name == "" || len(fault.Forms) == 0 {
				t.Errorf("%q: %+v", data, fault)
			}
			for _, form := range fault.Forms {
				all := lint.Kernels{From: form.From, To: form.To}
				if len(form.Lines) == 0 || slices.Contains(form.Lines, "") || form.To != (lint.Version{}) && !form.Of(all) {
					t.Errorf("%q: %+v", data, form)
				}
			}
		}
	})
}
