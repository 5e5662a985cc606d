// Package display formats values for people: untrusted text made safe, cuts, lists, counts, sizes
// and durations.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

const mark = "…"

// Prefix returns the first bytes of s, at most limit, without cutting a character in two.
func Prefix[S string | []byte](s S, limit int) S {
	if len(s) <= limit {
		return s
	}
	limit = max(limit, 0)
	for start := limit - 1; start >= 0 && start > limit-utf8.UTFMax; start-- {
		if utf8.RuneStart(s[start]) {
			end := min(start+utf8.UTFMax, len(s))
			if _, size := utf8.DecodeRuneInString(string(s[start:end])); start+size > limit {
				return s[:start]
			}
			break
		}
	}
	return s[:limit]
}

// Cut returns s if it has at most limit bytes; else its beginning and "…", together at most limit
// bytes. If there is no room for the mark it returns "".
func Cut(s string, limit int) string {
	switch {
	case len(s) <= limit:
		return s
	case limit < len(mark):
		return ""
	}
	return Prefix(s, limit-len(mark)) + mark
}

// List joins the first items, up to most, with commas, and adds how many more there are.
func List(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}

// Count returns a number with its noun: "1 task", "3 tasks", "2 processes".
func Count[N int | int32 | int64 | uint32 | uint64](n N, noun string) string {
	text := fmt.Sprintf("%d %s", n, noun)
	switch {
	case n == 1:
		return text
	case strings.HasSuffix(noun, "ss"):
		return text + "es"
	}
	return text + "s"
}

// Bytes formats a size in binary units with at most one decimal: 31 MiB, 1.5 GiB. (go-humanize
// writes 1.0 MiB and 1024 KiB, and takes six times as long; messages of rules have several sizes.)
func Bytes[N int64 | uint64](n N) string {
	if n < 0 {
		return "-" + Bytes(uint64(-n))
	}
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	bytes, unit, size := uint64(n), 0, uint64(1)
	// The next unit begins where this one would round to 1024.
	for unit < len(units)-1 && bytes >= size*1024-size/2 {
		unit, size = unit+1, size*1024
	}
	// Below ten a decimal matters; above, it is noise.
	if tenths := (bytes%size*10 + size/2) / size; bytes < 10*size && unit > 0 && tenths%10 != 0 {
		return strconv.FormatUint(bytes/size, 10) + "." + strconv.FormatUint(tenths, 10) + " " + units[unit]
	}
	return strconv.FormatUint((bytes+size/2)/size, 10) + " " + units[unit]
}

// Duration formats a duration with the digits that matter to a person: 2m5s, 1.3s, 40ms, 1h.
func Duration[D ~int64](of D) string {
	d := time.Duration(of)
	switch abs := d.Abs(); {
	case abs >= 10*time.Second:
		d = d.Round(time.Second)
	case abs >= 995*time.Millisecond: // 995ms and more round to 1s, so that there are never four digits
		d = d.Round(100 * time.Millisecond)
	case abs >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	case abs >= time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	case abs >= time.Microsecond:
		d = d.Round(time.Microsecond)
	}
	return Exact(d)
}

// Exact formats a duration with all digits, without zero parts at its end: 1h instead of 1h0m0s.
func Exact(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Clock formats a time of day in now's time zone, with the date unless it is now's.
func Clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// Cells returns how many terminal cells a text takes, without its colour sequences.
func Cells(s string) int {
	n := 0
	for s != "" {
		before, rest, coloured := strings.Cut(s, "\x1b[")
		for _, r := range before {
			switch k := width.LookupRune(r).Kind(); {
			case unicode.In(r, unicode.Mn, unicode.Me):
			case k == width.EastAsianWide || k == width.EastAsianFullwidth:
				n += 2
			default:
				n++
			}
		}
		if !coloured {
			break
		}
		_, s, _ = strings.Cut(rest, "m")
	}
	return n
}

// Safe makes an untrusted string (comm, cgroup name, path, script output) safe to display: it takes at
// most limit bytes of s, replaces unprintable characters and invalid UTF-8 by Go escapes (\x1b,
// \u202e), and marks a cut with "…". If nothing has to change, it returns s without allocating.
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

// printable excludes controls, format characters (bidirectional, zero-width) and line separators.
func printable(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) }
