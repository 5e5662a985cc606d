package tenancy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

// A tenant may run the example of docs/diagnose.md.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/diagnose.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n### Outside the system namespace\n")
	_, example, _ := strings.Cut(section, "```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	c, s := read(t, example, catalog.All(operation.Host{}))
	if _, err := tenancy.Resolve(c, s, diagnosis(map[string]string{"window": "10s"}), web()); !ok || err != nil {
		t.Errorf("the example: %v", err)
	}
}
