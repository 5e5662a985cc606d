package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const text = `# two
a: {b: [1, -2.5, true, null, "x", 2026-01-01]}
"kind": K
---
{"kind": "List", "items": [{"kind": "A", "n": 9007199254740993}, {"kind": "B"}]}
---
kind: BList
items: not a list
`

func TestParse(t *testing.T) {
	documents, errs := Parse(File{Name: "f", Data: []byte(text)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var have []any
	var numbers []int
	var kinds []string
	for _, d := range documents {
		have = append(have, Value(d.Root))
		numbers = append(numbers, d.Number)
		kinds = append(kinds, d.Text("kind"))
	}
	want := []any{
		map[string]any{"a": map[string]any{"b": []any{int64(1), -2.5, true, nil, "x", "2026-01-01"}}, "kind": "K"},
		map[string]any{"kind": "A", "n": int64(9007199254740993)},
		map[string]any{"kind": "B"},
		map[string]any{"kind": "BList", "items": "not a list"},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{1, 2, 2, 3}, numbers); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"K", "A", "B", "BList"}, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestPlaces(t *testing.T) {
	documents, _ := Parse(File{Name: "f", Data: []byte(text)})
	first, second := documents[0], documents[1]
	for path, want := range map[string]string{
		"a.b[1]":  "f:2:12: a.b[1]: m",
		"a.b":     "f:2:8: a.b: m",
		"a.b[9]":  "f:2:8: a.b[9]: m",
		"a.b.c":   "f:2:8: a.b.c: m",
		"a.none":  "f:2:4: a.none: m",
		"a[0].x.": "f:2:4: a[0].x: m",
		"":        "f:2:1: m",
	} {
		if have := first.At(first.Find(path), path, "m").Error(); have != want {
			t.Errorf("have %s\nwant %s", have, want)
		}
	}
	if have := first.At(first.FindKey("a.b"), "a.b", "m").Error(); have != "f:2:5: a.b: m" {
		t.Error(have)
	}
	if have := second.At(second.FindKey("n"), "n", "%d", 3).Error(); have != "f:5:42: items[0].n: 3" {
		t.Error(have)
	}
}

func TestBounds(t *testing.T) {
	for name, data := range map[string]string{
		"at most 4194304 are allowed": strings.Repeat("#", 5<<20),
		"file is not UTF-8":           "a: \xff",
		"more than 2000 documents":    strings.Repeat("---\na: b\n", 2001),
		"and 5 more":                  strings.Repeat("---\na: on\n", 105),
	} {
		_, errs := Parse(File{Name: "f", Data: []byte(data)})
		if len(errs) == 0 || !strings.Contains(errs.Err().Error(), name) {
			t.Errorf("want %s, have %.200v", name, errs)
		}
	}
	if documents, errs := Parse(File{Name: "f", Data: []byte(strings.Repeat("---\na: b\n", 2000))}); len(documents) != 2000 || len(errs) > 0 {
		t.Errorf("%d documents, %v", len(documents), errs)
	}
}
