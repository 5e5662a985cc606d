package display

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1000: "1000 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 4096: "4 KiB",
		32 << 20: "32 MiB", 31<<20 + 5: "31 MiB", 1503238553: "1.4 GiB", 3 << 29: "1.5 GiB", 900000000: "858 MiB",
		1<<20 - 1: "1 MiB", 2<<20 - 1: "2 MiB", 10<<30 - 1: "10 GiB", -5: "-5 B", math.MinInt64: "-8 EiB", math.MaxInt64: "8 EiB",
	} {
		if have := Bytes(n); have != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, have, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 40 * time.Millisecond: "40ms", 1234 * time.Millisecond: "1.2s", 119600 * time.Millisecond: "2m",
		125 * time.Second: "2m5s", time.Hour: "1h", 3 * time.Microsecond: "3µs", 12345 * time.Nanosecond: "12µs", 1234 * time.Microsecond: "1.2ms", 999 * time.Millisecond: "1s", 994 * time.Millisecond: "994ms", -time.Minute: "-1m",
	} {
		if have := Duration(d); have != want {
			t.Errorf("Duration(%v) = %q, want %q", d, have, want)
		}
	}
}

func TestExact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute: "1m", 2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 61 * time.Second: "1m1s", time.Hour + time.Second: "1h0m1s",
	} {
		if have := Exact(d); have != want {
			t.Errorf("Exact(%v) = %q, want %q", d, have, want)
		}
	}
}

func TestCut(t *testing.T) {
	tests := []struct {
		in           string
		limit        int
		prefix, want string
	}{
		{"abc", 3, "abc", "abc"},
		{"abcdef", 5, "abcde", "ab…"},
		{"aéé", 4, "aé", "a…"},
		{"éé", 3, "é", "…"},
		{"abc", 2, "ab", ""},
		{"abc", 0, "", ""},
		{"abc", -1, "", ""},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80", "\x80\x80…"},
	}
	for _, tt := range tests {
		if have := Prefix(tt.in, tt.limit); have != tt.prefix {
			t.Errorf("Prefix(%q, %d) = %q, want %q", tt.in, tt.limit, have, tt.prefix)
		}
		if have := Cut(tt.in, tt.limit); have != tt.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.in, tt.limit, have, tt.want)
		}
	}
}

func TestListAndCount(t *testing.T) {
	items := []string{"a", "b", "c"}
	if have := List(items, 3); have != "a, b, c" {
		t.Error(have)
	}
	if have := List(items, 2); have != "a, b and 1 more" {
		t.Error(have)
	}
	for n, want := range map[int]string{0: "0 processes", 1: "1 process", 2: "2 processes"} {
		if have := Count(n, "process"); have != want {
			t.Errorf("Count(%d) = %q, want %q", n, have, want)
		}
	}
	if have := Count(3, "task"); have != "3 tasks" {
		t.Error(have)
	}
}

func TestCells(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "größe": 5, "日本": 4, "e\u0301": 1, "\x1b[31mTrue\x1b[0m": 4, "a\x1b[33mb\x1b[0mc": 3,
	} {
		if got := Cells(text); got != want {
			t.Errorf("Cells(%q) = %d, want %d", text, got, want)
		}
	}
}

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
