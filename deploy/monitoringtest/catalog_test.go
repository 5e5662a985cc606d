package monitoringtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/deploy/monitoringtest"
)

// docs/metrics.md lists exactly the metrics in the sources, and other pages mention no others.
func TestEveryMetricIsKnown(t *testing.T) {
	root := monitoringtest.Root(t)
	catalog := monitoringtest.Catalog(t)
	known := map[string]bool{}
	for _, m := range catalog {
		known[m.Name] = true
	}
	quoted := regexp.MustCompile(`"((?:kernosis_|problem_)[a-z_]+)"`)
	named := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "deploy", "vmtest", "docs"}, d.Name())) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "prometheus.") {
			return err
		}
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			named[m[1]] = true
			if !known[m[1]] {
				t.Errorf("%s: docs/metrics.md does not have %s", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if !named[name] {
			t.Errorf("docs/metrics.md has %s, which nothing exports", name)
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`(kernosis_[a-z_]*[a-z])[`{]").FindAllStringSubmatch(string(text), -1) {
			prefix := slices.ContainsFunc(catalog, func(m monitoringtest.Metric) bool { return strings.HasPrefix(m.Name, name[1]) })
			if !known[name[1]] && !prefix {
				t.Errorf("%s names %s, which nothing exports", path, name[1])
			}
		}
	}
}

// Uses finds the metrics and labels of a query.
func TestUses(t *testing.T) {
	uses, grouping := monitoringtest.Uses(`sum by (le, a) (rate(x_bucket{b="c, d", e=~"f"}[5m] offset 1h)) > bool 2 and on (g) y unless topk(5, z{h!=""})`)
	var got []string
	for _, u := range uses {
		got = append(got, u.Metric+" "+strings.Join(u.Labels, ","))
	}
	if want := []string{"x_bucket b,e", "y ", "z h"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if want := []string{"le", "a", "g"}; !slices.Equal(grouping, want) {
		t.Errorf("%q", grouping)
	}
}
