package catalog

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/operation"
)

var update = flag.Bool("update", false, "write the generated part of docs/operations.md anew")

// TestDocs: what docs/operations.md says of the built-ins is what they declare.
func TestDocs(t *testing.T) {
	const path, begin = "../../../docs/operations.md", "<!-- From here on made by: go test ./diagnose/operation/catalog -run TestDocs -update -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, have, ok := strings.Cut(string(b), begin)
	if !ok {
		t.Fatalf("%s has no line %q", path, begin)
	}
	want := document(All(operation.Host{}))
	if *update {
		if err := os.WriteFile(path, []byte(head+begin+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

// document writes a table of all built-ins and a chapter of each.
func document(all []operation.Builtin) string {
	var b strings.Builder
	b.WriteString("\n| operation | effect | tenant-safe | |\n|---|---|---|---|\n")
	for i := range all {
		o := &all[i]
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |\n", o.Name, o.Name, effect(o), yes(o.TenantSafe), cell(o.Doc))
	}
	for i := range all {
		o := &all[i]
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", o.Name, o.Doc)
		if len(o.Parameters) > 0 {
			b.WriteString("\n| parameter | | |\n|---|---|---|\n")
			for _, p := range o.Parameters {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, cell(p.Form()), cell(p.Doc))
			}
		}
		if len(o.Results) > 0 {
			b.WriteString("\n| result | |\n|---|---|\n")
			for _, r := range o.Results {
				fmt.Fprintf(&b, "| `%s` | %s |\n", r.Name, cell(r.Doc))
			}
		}
	}
	return b.String()
}

// effect reports who makes a repair where it is not the node.
func effect(o *operation.Builtin) string {
	if o.ByController {
		return string(o.Effect) + ", by the controller"
	}
	return string(o.Effect)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
