package logpattern_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logpattern"
)

func TestCompileReportsEveryMistake(t *testing.T) {
	_, err := logpattern.Compile([]logpattern.Pattern{
		{Name: "good", Expr: "x y"},
		{Name: "open", Expr: "a(b"},
		{Name: "close", Expr: "a)(b"},
		{Name: "open", Expr: "again"},
		{Expr: "no name"},
		{Name: "empty"},
		{Name: "far", Expr: "x", Lines: 101},
		{Name: "back", Expr: "x", Lines: -1},
		{Name: "few", Expr: `a\nb\nc`, Lines: 2},
		{Name: "endless", Expr: `a(\nb)*`},
		{Name: "tall", Expr: `(a\n){100}`},
		{Name: "long", Expr: strings.Repeat("ab", 2049)},
		{Name: "huge", Expr: `((ab){100}c){10}`},
		{Name: "catastrophe", Expr: `(a{1000}){1000}`},
		{Name: "classes", Expr: strings.Repeat(`\pL`, 20)},
		{Name: "logs", Expr: "x", Logs: []string{"kernel", ""}},
		{Name: "both", Expr: "(", Lines: 200},
		{Name: strings.Repeat("n", 257), Expr: "x"},
	})
	if err == nil {
		t.Fatal("no mistake is reported")
	}
	want := []string{
		"pattern \"open\": expression: error parsing regexp: missing closing ): `a(b`",
		"pattern \"close\": expression: error parsing regexp: unexpected ): `a)(b`",
		"pattern \"open\": name: already used by pattern 2",
		"pattern 5: name: missing",
		"pattern \"empty\": expression: missing",
		"pattern \"far\": lines: 101: want 0 to 100",
		"pattern \"back\": lines: -1: want 0 to 100",
		"pattern \"few\": lines: the expression has 2 newlines and can't match within 2",
		"pattern \"endless\": lines: the expression repeats a newline without limit: set how many lines it may span",
		"pattern \"tall\": lines: the expression has 100 newlines, more than 100 lines",
		"pattern \"long\": expression: longer than 4096 bytes",
		"pattern \"huge\": expression: compiles to 4030 instructions, more than 1000: use fewer repetitions or smaller character classes",
		"pattern \"catastrophe\": expression: error parsing regexp: invalid repeat count: `{1000}`",
		"pattern \"classes\": expression: compiles to 2640 instructions, more than 1000: use fewer repetitions or smaller character classes",
		"pattern \"logs\": logs: a name is empty",
		"pattern \"both\": lines: 200: want 0 to 100",
		"pattern \"both\": expression: error parsing regexp: missing closing ): `(`",
		"pattern \"" + strings.Repeat("n", 257) + "\": name: longer than 256 bytes",
	}
	if got := strings.Split(err.Error(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
	var mistake *logpattern.Error
	if !errors.As(err, &mistake) || mistake.Index != 1 || mistake.Name != "open" || mistake.Unwrap() == nil {
		t.Errorf("the first is %+v", mistake)
	}
}

func manyGroups(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "(?P<g%d>x)", i)
	}
	return b.String()
}

func TestCompileBounds(t *testing.T) {
	many := func(n int, expr string) []logpattern.Pattern {
		p := make([]logpattern.Pattern, n)
		for i := range p {
			p[i] = logpattern.Pattern{Name: strconv.Itoa(i), Expr: expr}
		}
		return p
	}
	for _, tt := range []struct {
		patterns []logpattern.Pattern
		want     string
	}{
		{many(4097, "x"), "4097 patterns: at most 4096 are allowed"},
		{many(600, `(\d{450}x){2}`), `pattern "551": expression: this and the patterns before it compile to more than 500000 instructions`},
		{[]logpattern.Pattern{{Name: "p", Expr: manyGroups(17)}}, `pattern "p": expression: more than 16 named groups`},
		{[]logpattern.Pattern{{Name: "p", Expr: manyGroups(16)}}, ""},
		{many(4096, "x"), ""},
		{nil, ""},
	} {
		start := time.Now()
		_, err := logpattern.Compile(tt.patterns)
		if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		// It takes seconds instead of the hour that it could take; the limit allows for slow
		// machines.
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%.40s: took %v", tt.want, took)
		}
	}
}

func TestLinesOfAPattern(t *testing.T) {
	for _, tt := range []struct {
		p    logpattern.Pattern
		want int
	}{
		{logpattern.Pattern{Expr: "a"}, 1},
		{logpattern.Pattern{Expr: `a\nb`}, 2},
		{logpattern.Pattern{Expr: `a\n(b\n)?c`}, 3},
		{logpattern.Pattern{Expr: `a[^x]*\sb`}, 1},
		{logpattern.Pattern{Expr: `(a\n)+b`, Lines: 7}, 7},
		{logpattern.Pattern{Expr: `(a\n)+b`, AnchorEnd: true}, 10},
		{logpattern.Pattern{Expr: `a\nb`, AnchorEnd: true, Lines: 1}, 1},
		{logpattern.Pattern{Expr: `(a\n){99}`}, 100},
	} {
		tt.p.Name = "p"
		set, err := logpattern.Compile([]logpattern.Pattern{tt.p})
		if err != nil {
			t.Error(err)
			continue
		}
		if got := set.Pattern(0).Lines; got != tt.want {
			t.Errorf("%+v: %d lines, want %d", tt.p, got, tt.want)
		}
	}
}

func TestUnfiltered(t *testing.T) {
	set, err := logpattern.Compile([]logpattern.Pattern{
		{Name: "a", Expr: `error \d+`},
		{Name: "b", Expr: `\d+ \w+`},
		{Name: "c", Expr: `(?i)oom|\d{5}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(set.Unfiltered()); got != "[1 2]" {
		t.Errorf("unfiltered: %s", got)
	}
	if got := fmt.Sprintf("%q %q", set.Literals(0), set.Literals(1)); got != `["error "] []` {
		t.Errorf("literals: %s", got)
	}
	npd, err := logpattern.Compile(kernelMonitor())
	if err != nil {
		t.Fatal(err)
	}
	if got := npd.Unfiltered(); len(got) > 0 {
		t.Errorf("NPD's %v have no literal", got)
	}
}
