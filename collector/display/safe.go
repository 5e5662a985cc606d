package display

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Safe makes an untrusted string (comm, cgroup name, path, script output) safe to display: it
// takes at most limit bytes of s, replaces control and other unprintable characters and invalid
// UTF-8 by Go escapes (\x1b, \u202e), and marks a cut with "…". It returns s itself, without
// allocating, if nothing has to change.
func Safe(s string, limit int) string {
	if len(s) <= limit && IsSafe(s) {
		return s
	}
	cut := len(s) > limit
	s = Prefix(s, limit)
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case printable(r):
			b.WriteString(s[i : i+size])
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += size
	}
	if cut {
		b.WriteString(mark)
	}
	return b.String()
}

// SafeLines is [Safe] for a text of several lines, without a limit; it keeps line breaks and tabs.
func SafeLines(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexAny(s, "\n\t")
		if i < 0 {
			b.WriteString(Safe(s, len(s)))
			return b.String()
		}
		b.WriteString(Safe(s[:i], i))
		b.WriteByte(s[i])
		s = s[i+1:]
	}
}

// Bounded is [Safe] with a result of at most limit bytes, including escapes and mark, for
// receivers that refuse a longer text as a whole. It does not cut within an escape.
func Bounded(s string, limit int) string {
	if len(s) <= limit && IsSafe(s) {
		return s
	}
	most := limit - len(mark)
	if most <= 0 {
		return ""
	}
	if s = Safe(s, most); len(s) <= limit {
		return s
	}
	const longestEscape = len(`\U0010ffff`)
	s = Prefix(s, most)
	from := max(0, len(s)-longestEscape)
	if i := strings.LastIndexByte(s[from:], '\\'); i >= 0 {
		s = s[:from+i]
	}
	return s + mark
}

// IsSafe reports whether [Safe] would return s unchanged.
func IsSafe(s string) bool {
	for i, r := range s {
		switch {
		case r < utf8.RuneSelf:
			if r < ' ' || r == 0x7f {
				return false
			}
		case !printable(r), r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"): // not UTF-8
			return false
		}
	}
	return true
}

// printable excludes controls, format characters (bidirectional overrides,
// zero-width) and line separators.
func printable(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) }
