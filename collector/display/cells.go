package display

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

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
