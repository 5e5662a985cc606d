package catalog

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/operation"
)

func TestBuiltinsAreDeclaredWell(t *testing.T) {
	all := All(operation.Host{})
	if len(all) == 0 {
		t.Fatal("there is none")
	}
	for i := range all {
		if i > 0 && all[i-1].Name >= all[i].Name {
			t.Errorf("%s is not sorted, or not the only one of this name", all[i].Name)
		}
		for _, problem := range problems(&all[i]) {
			t.Errorf("%s: %s", all[i].Name, problem)
		}
	}
}

// problems returns what is wrong with a built-in.
func problems(b *operation.Builtin) []string {
	var wrong []string
	add := func(s ...string) { wrong = append(wrong, strings.Join(s, " ")) }
	kebab, camel := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`), regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	if !kebab.MatchString(b.Name) {
		add("name")
	}
	if !sentence(b.Doc) || strings.Contains(b.Doc, "\n") {
		add("doc is no sentence on a line")
	}
	if !slices.Contains([]operation.Effect{operation.Collect, operation.Check, operation.Remediate}, b.Effect) {
		add("effect", string(b.Effect))
	}
	if b.TenantSafe && b.Effect != operation.Collect {
		add("tenant-safe, but no Collect")
	}
	if (b.Effect == operation.Check) != strings.HasPrefix(b.Name, "check-") {
		add("a Check is named check-, and nothing else")
	}
	if (b.Run == nil) != b.ByController {
		add("does nothing, or what the controller does")
	}
	if b.ByController && b.Effect != operation.Remediate {
		add("the controller makes repairs alone")
	}
	names := map[string]bool{}
	for _, p := range b.Parameters {
		if !camel.MatchString(p.Name) || names[p.Name] {
			add("parameter", p.Name, "is not camelCase or not the only one")
		}
		names[p.Name] = true
		if p.Doc == "" || strings.Contains(p.Doc, "\n") {
			add("parameter", p.Name, "has no doc")
		}
		if !slices.Contains([]operation.Kind{operation.String, operation.Integer, operation.Boolean, operation.Duration, operation.Bytes, operation.Address, operation.Enum}, p.Kind) {
			add("parameter", p.Name, "has kind", string(p.Kind))
		}
		if err := p.Check(p.Default); err != nil {
			add("parameter", p.Name, "default", err.Error())
		}
		if p.Required && p.Default != "" {
			add("parameter", p.Name, "is required and has a default")
		}
		if (p.Kind == operation.Enum) != (len(p.Values) > 0) {
			add("parameter", p.Name, "values are of an enum")
		}
		if p.Min < 0 || p.Max < 0 || p.Max > 0 && p.Min > p.Max {
			add("parameter", p.Name, "bounds")
		}
	}
	names = map[string]bool{}
	for _, r := range b.Results {
		if !camel.MatchString(r.Name) || names[r.Name] {
			add("result", r.Name, "is not camelCase or not the only one")
		}
		names[r.Name] = true
		if r.Doc == "" || strings.Contains(r.Doc, "\n") {
			add("result", r.Name, "has no doc")
		}
	}
	return wrong
}

// sentence reports whether s begins with a capital and ends with a period, which tables require.
func sentence(s string) bool {
	return regexp.MustCompile(`^[A-Z].*[.]$`).MatchString(s)
}

func TestProblemsOfABlueprintAreFound(t *testing.T) {
	b := operation.Builtin{
		Name: "Bad_name", Doc: "no sentence", Effect: "Guess", TenantSafe: true,
		Parameters: []operation.Parameter{
			{Name: "a_b", Kind: "float"}, {Name: "n", Doc: "d", Kind: operation.Integer, Default: "x"}, {Name: "n", Doc: "d", Kind: operation.Enum},
			{Name: "r", Doc: "d", Kind: operation.String, Required: true, Default: "x"}, {Name: "m", Doc: "d", Kind: operation.Integer, Min: 2, Max: 1},
		},
		Results: []operation.Result{{Name: "R"}},
	}
	if got := problems(&b); len(got) != 15 {
		t.Errorf("%d: %q", len(got), got)
	}
}

func TestLookup(t *testing.T) {
	all := All(operation.Host{})
	for i := range all {
		if b, ok := operation.Lookup(all, all[i].Name); !ok || b != &all[i] {
			t.Errorf("%s is not found", all[i].Name)
		}
	}
	if _, ok := operation.Lookup(all, "no-such"); ok {
		t.Error("what is not there is found")
	}
}
