package plugin

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "NTP is down\n", "a\x00b\xff\u202e", " \r\n\t x \v y \f", strings.Repeat("ä", 100)} {
		f.Add([]byte(s), uint16(80))
	}
	f.Fuzz(func(t *testing.T, output []byte, limit uint16) {
		text, cut := message(output, int(limit))
		if len(text) > int(limit) || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			t.Fatalf("%q of %q, limit %d", text, output, limit)
		}
		if whole, _ := message(output, 1<<20); !strings.HasPrefix(whole, text) || len(text)+int(cut) != len(whole) {
			t.Fatalf("%q is not the beginning of %q, cut %d", text, whole, cut)
		}
	})
}
