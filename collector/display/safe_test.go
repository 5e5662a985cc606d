package display

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestSafe(t *testing.T) {
	tests := []struct {
		name, in string
		limit    int
		want     string
	}{
		{"plain", "nginx: worker", 64, "nginx: worker"},
		{"unicode stays", "größe→日本", 64, "größe→日本"},
		{"escape sequence", "a\x1b[2Jb", 64, `a\x1b[2Jb`},
		{"newline", "a\nb", 64, `a\nb`},
		{"invalid UTF-8", "a\xffb", 64, `a\xffb`},
		{"low byte keeps two digits", "\x80\x01", 64, `\x80\x01`},
		{"bidirectional override", "a\u202eb", 64, `a\u202eb`},
		{"cut", "abcdef", 3, "abc…"},
		{"cut inside a rune", "aé", 2, "a…"},
		{"replacement character itself", "\ufffd", 64, "\ufffd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Safe(tt.in, tt.limit); got != tt.want {
				t.Errorf("Safe(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
			}
		})
	}
	if n := testing.AllocsPerRun(100, func() { Safe("kworker/u8:2", 64) }); n != 0 {
		t.Errorf("a harmless name costs %v allocations", n)
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("a\x1b\xff\u202e", 3)
	f.Add(strings.Repeat("é", 5000), 4096)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		got := Safe(s, limit)
		// "\U0010ffff" is the longest escape, of four bytes.
		if len(got) > 10*limit+len(mark) {
			t.Errorf("%d bytes of %d", len(got), limit)
		}
		if !utf8.ValidString(got) {
			t.Errorf("%q is not valid", got)
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }); i >= 0 {
			t.Errorf("%q has an unprintable character at %d", got, i)
		}
	})
}

func TestSafeLines(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a\n\tb\n": "a\n\tb\n", "\x1b[0m\r\nä\xff": `\x1b[0m\r` + "\n" + `ä\xff`, "\u202e": `\u202e`,
	} {
		if got := SafeLines(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A bounded text is never longer than its limit, and never ends within an escape.
func TestBounded(t *testing.T) {
	for in, want := range map[string]string{
		"abcdefgh": "abcdefgh", "abcdefghi": "abcde…", "ab\x1b": `ab\x1b`, "abcd\x1b": `abcd\x1b`, "abcde\x1b": "abcde…",
		"a\u202eb": `a\u202eb`, "ab\u202eb": "ab…", "\xff\xff\xff": `\xff…`, "éééé": "éééé", "ééééé": "éé…",
	} {
		if have := Bounded(in, 8); have != want {
			t.Errorf("Bounded(%q) = %q, want %q", in, have, want)
		}
	}
	if have := Bounded("abc", 2); have != "" {
		t.Errorf("%q", have)
	}
}
