package display

import "testing"

func TestCells(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "größe": 5, "日本": 4, "e\u0301": 1, "\x1b[31mTrue\x1b[0m": 4, "a\x1b[33mb\x1b[0mc": 3,
	} {
		if got := Cells(text); got != want {
			t.Errorf("Cells(%q) = %d, want %d", text, got, want)
		}
	}
}
