package chart_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/deploy/chart"
)

// The README lists each value with its description in values.yaml.
func TestReadmeHasTheValues(t *testing.T) {
	text, err := os.ReadFile("kernosis/README.md")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("kernosis/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := chart.Readme(text, values)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Error("kernosis/README.md does not have the values of values.yaml (make generate-deploy)")
	}
	if n := bytes.Count(text, []byte("\n| ")); n < 130 {
		t.Errorf("only %d rows", n)
	}
	// Links are absolute, because the README is also read elsewhere.
	const base = "https://github.com/kernosis/kernosis/blob/main/"
	links := 0
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllSubmatch(text, -1) {
		if path, ok := strings.CutPrefix(string(m[1]), base); ok && exists("../../"+path) {
			links++
		} else if link := string(m[1]); link != "https://github.com/kernosis/kernosis" {
			t.Errorf("link %s: want a file of this repository below %s", link, base)
		}
	}
	if links < 7 {
		t.Errorf("only %d links", links)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Rows of the README follow the comments as in helm-docs.
func TestReadme(t *testing.T) {
	const readme = "# Chart\n<!-- values: written by make generate-deploy from the comments of values.yaml -->\nold\n<!-- end of values -->\nend\n"
	got, err := chart.Readme([]byte(readme), []byte(`# Not a comment of a value.

a:
  # -- First line,
  # second line.
  one: "x|y"
  # -- Three.
  # @default -- it depends
  three: ""
# A section
# of two lines.
b:
  # Plain, then the description.
  # -- A list.
  list: [1, 2.5, {k: "<v>"}]
  deep:
    # -- A map that is one value.
    map: {k: v}
    # -- Nothing.
    none: null
# -- On or off.
c: true
`))
	if err != nil {
		t.Fatal(err)
	}
	const head = "| Key | Type | Default | Description |\n|---|---|---|---|\n"
	want := strings.Replace(readme, "old\n", "\n### General\n\n"+head+
		"| a.one | string | `\"x\\|y\"` | First line, second line. |\n"+
		"| a.three | string | it depends | Three. |\n"+
		"| c | bool | `true` | On or off. |\n"+
		"\n### b\n\nA section of two lines.\n\n"+head+
		"| b.list | list | `[1,2.5,{\"k\":\"<v>\"}]` | A list. |\n"+
		"| b.deep.map | object | `{\"k\":\"v\"}` | A map that is one value. |\n"+
		"| b.deep.none | nil | `null` | Nothing. |\n\n", 1)
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	for values, want := range map[string]string{
		"# -- A.\na: 1\nb:\n  # Of no form.\n  c: 2\n": `values.yaml:5: b.c has no description: want a comment "# -- text" above it`,
		"a: {}\n": "values.yaml:1: a has no description",
		"a: [\n":  "values.yaml: ",
		"":        "want a map",
	} {
		if _, err := chart.Readme([]byte(readme), []byte(values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", values, err, want)
		}
	}
	if _, err := chart.Readme([]byte("# Chart\n"), []byte("a: 1\n")); err == nil || !strings.Contains(err.Error(), "<!-- end of values -->") {
		t.Errorf("a README without the lines around the values: %v", err)
	}
}

// The documentation gives a reason for each capability of the hardened profile.
func TestCapabilitiesHaveTheirReasons(t *testing.T) {
	values := valuesOf(t, "kernosis/values.yaml")
	list := values["agent"].(map[string]any)["hardened"].(map[string]any)["capabilities"].([]any)
	var want []string
	for _, c := range list {
		want = append(want, c.(string))
	}
	slices.Sort(want)
	text, err := os.ReadFile("../../docs/capabilities.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Hardened\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `CAP_([A-Z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/capabilities.md: %v, the chart has %v", got, want)
	}
}

// The values that pages mention exist.
func TestPagesNameValuesThatAreThere(t *testing.T) {
	top := readSchema(t)
	for _, page := range []string{"install.md", "npd.md", "security.md", "controller.md", "fleet.md", "gitops.md", "monitoring.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("[` ]((?:agent|npd|image|global|hooks|controller|alerts|repairs|admission|monitoring|uninstall|priorityClassQuota|flowControl|diagnoseSets|crds|networkPolicy)\\.[a-zA-Z.-]+[a-zA-Z])").FindAllStringSubmatch(string(text), -1) {
			at := top
			for name := range strings.SplitSeq(m[1], ".") {
				if ref, ok := strings.CutPrefix(at.Ref, "#/definitions/"); ok {
					at = top.Definitions[ref]
				}
				next, ok := at.Properties[name]
				if !ok && !strings.HasSuffix(m[1], ".md") && !strings.HasSuffix(m[1], ".io") && !strings.HasSuffix(m[1], ".com") {
					t.Errorf("%s: there is no value %s", page, m[1])
					break
				}
				at = next
			}
		}
	}
}
