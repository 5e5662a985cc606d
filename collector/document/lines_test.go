package document

import (
	"maps"
	"testing"
)

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
