package kernosis_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each claim in docs/security.md, a row of a table, names the tests that prove it, and these exist.
func TestClaimsHaveTests(t *testing.T) {
	exists, claims := testNames(t), 0
	for _, section := range strings.Split(read(t, "docs/security.md"), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		before, inTable := claims, false
		for line := range strings.Lines(section) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if len(cells) < 4 {
				inTable = false
				continue
			}
			switch last := strings.TrimSpace(cells[len(cells)-2]); {
			case last == "test":
				inTable = true
			case inTable && strings.Trim(last, "-") != "":
				claims++
				for name := range strings.SplitSeq(last, ", ") {
					if !exists[strings.Trim(name, "`")] {
						t.Errorf("%s: %q of the claim %q is no test", title, name, strings.TrimSpace(cells[1]))
					}
				}
			case inTable && last == "":
				t.Errorf("%s: no test of the claim %q", title, strings.TrimSpace(cells[1]))
			}
		}
		if claims == before {
			t.Errorf("%s: no claims", title)
		}
	}
}

// testNames returns the names of the module's tests.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	test := regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t \*testing\.T\)`)
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(p, "_test.go"):
			for _, m := range test.FindAllStringSubmatch(read(t, p), -1) {
				names[m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
