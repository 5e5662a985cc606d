package convert

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDocsHaveTheProcessors(t *testing.T) {
	const path = "../../docs/convert.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| processor | built-in | |\n|---|---|---|\n")
	known := counterparts()
	for _, name := range slices.Sorted(maps.Keys(known)) {
		builtin := "lost"
		if known[name].builtin != "" {
			builtin = "`" + known[name].builtin + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, builtin, known[name].note)
	}
	place := regexp.MustCompile(`(?s)(<!-- processors:[^\n]*-->\n).*(<!-- end -->)`)
	want := place.ReplaceAllString(string(text), "${1}"+strings.ReplaceAll(b.String(), "$", "$$")+"\n${2}")
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Error("docs/convert.md is not what the table says: go test ./diagnose/convert -update")
	}
}
