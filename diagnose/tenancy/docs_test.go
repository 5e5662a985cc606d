package tenancy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

// The examples for tenants in docs/security.md may be run by a tenant, and the tests that it names
// exist.
func TestDocs(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(doc), "```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	c, s := read(t, example, catalog.All(operation.Host{}))
	if _, err := tenancy.Resolve(c, s, diagnosis(map[string]string{"window": "10s"}), web()); !ok || err != nil {
		t.Errorf("the example: %v", err)
	}
	tests := map[string]bool{}
	for _, name := range regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(string(doc), -1) {
		tests[name] = false
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		for name := range tests {
			tests[name] = tests[name] || strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
		}
		return err
	})
	if err != nil || len(tests) < 10 {
		t.Fatal(len(tests), err)
	}
	for name, found := range tests {
		if !found {
			t.Errorf("there is no %s", name)
		}
	}
}
