package detector_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// TestDocPages checks that each shipped rule has a page that names the rule and
// its reason, and that every page belongs to a rule.
func TestDocPages(t *testing.T) {
	set, err := detector.Load(detector.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, r := range set.Rules() {
		path := filepath.Join("..", "docs", filepath.FromSlash(r.Doc)+".md")
		used[filepath.Base(path)] = true
		page, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("rule %s: %v", r.Name, err)
			continue
		}
		for _, part := range []string{"`" + r.Name + "`", r.Reason} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s: %q is missing", path, part)
			}
		}
		if r.Condition != "" && filepath.Base(path) != r.Condition+".md" || r.Condition == "" && filepath.Base(path) != r.Reason+".md" {
			t.Errorf("rule %s: its page is %s, want the name of its condition, else its reason", r.Name, r.Doc)
		}
	}
	pages, err := filepath.Glob("../docs/problems/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if !used[filepath.Base(p)] {
			t.Errorf("%s: no rule has this page", p)
		}
	}
}

// TestFieldTable checks that the field table of docs/rules.md matches the code.
func TestFieldTable(t *testing.T) {
	const path = "../docs/rules.md"
	const end = "<!-- end of fields -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), "<!-- fields")
	marker, rest, ok2 := strings.Cut(rest, "-->\n")
	_, tail, ok3 := strings.Cut(rest, end)
	if !ok || !ok2 || !ok3 {
		t.Fatal("no marks for the field table")
	}
	want := head + "<!-- fields" + marker + "-->\n" + fieldTable() + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Error("the field table of docs/rules.md is old: run with -update")
	}
}

// fieldTable returns the table of fields by the kinds that carry them, fields of many kinds first.
func fieldTable() string {
	fields := event.Fields()
	slices.SortStableFunc(fields, func(a, b *event.Field) int {
		inA, inB := carriers(a), carriers(b)
		return cmp.Or(len(inB)-len(inA), slices.Compare(inA, inB))
	})
	var b strings.Builder
	b.WriteString("| field | meaning |\n|---|---|\n")
	group := ""
	for _, f := range fields {
		by := strings.Join(carriers(f), " ")
		if len(f.Kinds) == len(event.Kinds()) {
			by = "all kinds"
		}
		if by != group {
			group = by
			b.WriteString("| **" + by + "** | |\n")
		}
		name := "`" + f.Name + "`"
		if f.Type != event.TypeString {
			name += " (" + string(f.Type) + ")"
		}
		b.WriteString("| " + name + " | " + f.Doc + " |\n")
	}
	return b.String()
}

// carriers returns the kinds that carry a field, without those that end another of these kinds.
func carriers(f *event.Field) []string {
	var kinds []string
	for _, k := range f.Kinds {
		begins := func(b event.Kind) bool { return b != k && b.EndedBy() == k }
		if !slices.ContainsFunc(f.Kinds, begins) {
			kinds = append(kinds, "`"+string(k)+"`")
		}
	}
	return kinds
}

// TestFields checks that every field can be read from an event without its
// payload, and that the fields are sorted.
func TestFields(t *testing.T) {
	fields := event.Fields()
	if !slices.IsSortedFunc(fields, func(a, b *event.Field) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("fields are not sorted")
	}
	for _, f := range fields {
		if len(f.Kinds) == 0 || f.Doc == "" || !slices.IsSorted(f.Kinds) {
			t.Errorf("field %s: kinds %v, doc %q", f.Name, f.Kinds, f.Doc)
		}
		for _, k := range f.Kinds {
			if end := k.EndedBy(); end != "" && !slices.Contains(f.Kinds, end) {
				t.Errorf("field %s: %s carries it and %s does not: the table lists them as one", f.Name, k, end)
			}
		}
	}
}
