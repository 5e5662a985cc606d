package document

import (
	"maps"
	"strings"
	"testing"
)

// TestPosition looks for the mark ‹X› of a value in its source, in each style.
func TestPosition(t *testing.T) {
	for name, source := range map[string]string{
		"plain":             "k: abc def X ghi",
		"plain, lines":      "k: abc def\n    ghi X jkl",
		"plain, blank line": "k: abc\n\n  X jkl",
		"single":            "k: 'a ''quoted'' X'",
		"single, lines":     "k: 'a\n   b ''X'",
		"double":            `k: "a \"q\" \x41 \u0042 X"`,
		"double, lines":     "k: \"a b\n  c \\\\ X\"",
		"literal":           "k: |\n   first\n   second X",
		"literal, indented": "k: |\n   first\n     second X",
		"literal, blank":    "k: |\n\n   first\n\n   X",
		"folded":            "k: >-\n  first\n  second X",
		"wide":              "k: größe „X",
		"flow":              "k: {a: b, c: 'd X'}",
	} {
		f, root := Read("f", []byte(source+"\n"))
		if root == nil {
			t.Fatalf("%s: %v", name, f.Errors)
		}
		n := root.Content[1]
		if len(n.Content) > 0 {
			n = n.Content[3]
		}
		offset := strings.Index(n.Value, "X")
		offset = len([]rune(n.Value[:offset]))
		line, column := f.position(n, offset)
		have := rune(0)
		if ls := strings.Split(source, "\n"); line <= len(ls) && column <= len([]rune(ls[line-1])) {
			have = []rune(ls[line-1])[column-1]
		}
		if have != 'X' {
			t.Errorf("%s: position %d:%d is %q, want X", name, line, column, have)
		}
	}
}

func TestLines(t *testing.T) {
	got, err := Lines([]byte("a: 1\nlist:\n- {x: 1,\n   y: 2}\n- [3,\n   4]\nunder:\n  b: &b\n    c: 5\n  d: *b\n"))
	want := map[string]int{
		"a": 1, "list": 2, "list[0]": 3, "list[0].x": 3, "list[0].y": 4, "list[1]": 5, "list[1][0]": 5, "list[1][1]": 6,
		"under": 7, "under.b": 8, "under.b.c": 9, "under.d": 10,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v: %v", err, got)
	}
	if got, err := Lines(nil); err != nil || len(got) != 0 {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	if _, err := Lines([]byte("a: [")); err == nil {
		t.Error("what is no YAML has lines")
	}
}
