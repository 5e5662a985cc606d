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

// Prefix returns the first bytes of s, at most limit, without a character that would be cut in
// two.
func Prefix(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	limit = max(limit, 0)
	for end := limit; end >= 0 && end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end]
		}
	}
	return s[:limit] // not UTF-8
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

// Duration formats a duration, in nanoseconds, with the digits that matter to a person: 2m5s,
// 1.3s, 40ms, 1h.
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

// Exact formats a duration with all its digits, but without zero parts at its end: 1h instead of
// 1h0m0s.
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
