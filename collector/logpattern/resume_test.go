package logpattern_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/logpattern"
)

// A matcher that takes over between any two lines reports what a single one would have reported.
func TestResume(t *testing.T) {
	set := compile(t,
		logpattern.Pattern{Expr: `BUG.*\n.*RIP: (?P<at>\S+)`},
		logpattern.Pattern{Expr: `first\n(?:.*\n){2}last`},
		logpattern.Pattern{Expr: `BUG(?:.*\n.*)*RIP.*`, AnchorEnd: true, Lines: 3},
		logpattern.Pattern{Expr: `RIP`},
	)
	log := strings.Split("x|BUG here|RIP: a|first|BUG|RIP: b|last|||first|a|BUG\xff|last of all|RIP: c", "|")
	report := func(takeOver int) string {
		m := set.NewMatcher("")
		var hits logpattern.Hits
		var reported strings.Builder
		for i, line := range log {
			if i == takeOver {
				next := set.NewMatcher("")
				next.Resume(m.Recent())
				m = next
			}
			m.Match([]byte(line), &hits)
			for _, h := range hits.Hits {
				fmt.Fprintf(&reported, "%d: %d %q %d\n", i, h.Pattern, h.Context, h.Lines)
			}
		}
		return reported.String()
	}
	want := report(-1)
	if strings.Count(want, "\n") < 8 {
		t.Fatalf("the log is too dull:\n%s", want)
	}
	for i := range log {
		if have := report(i); have != want {
			t.Errorf("taken over before line %d:\n%s\nwant:\n%s", i, have, want)
		}
	}
	single := compile(t, logpattern.Pattern{Expr: "RIP"}).NewMatcher("")
	single.Match([]byte("x"), new(logpattern.Hits))
	if lines := single.Recent(); lines != nil {
		t.Errorf("%q is kept for patterns of one line", lines)
	}
}
