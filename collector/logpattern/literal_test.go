package logpattern

import (
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

func TestRequiredLiterals(t *testing.T) {
	folded := []string{"\u017f", "\u212a"} // ſ and the Kelvin sign, in the order of their bytes
	for _, tt := range []struct {
		expr        string
		whole, last []string // last nil: as whole
	}{
		// NPD's.
		{expr: `Killed process \d+ (.+) total-vm:\d+kB, anon-rss:\d+kB, file-rss:\d+kB.*`, whole: []string{"killed process "}},
		{expr: `task [\S ]+:\w+ blocked for more than \w+ seconds\.`, whole: []string{"d for more than "}, last: []string{"d for more than "}},
		{expr: `.*\[Hardware Error\]: event severity: fatal$`, whole: []string{" severity: fatal"}},
		{expr: `divide error: 0000 \[#\d+\] SMP`, whole: []string{"e error: 0000 [#"}},

		{expr: `abort|abandon`, whole: []string{"abandon", "abort"}},
		{expr: `[Ff]atal error`, whole: []string{"fatal error"}},
		{expr: `task(s)? blocked`, whole: []string{"task blocked", "tasks blocked"}},
		{expr: `ab[01]cd`, whole: []string{"ab0cd", "ab1cd"}},
		{expr: `(ab|cd)(ef|gh)`, whole: []string{"abef", "abgh", "cdef", "cdgh"}},
		{expr: `(panic.*|oops.+x)y`, whole: []string{"oops", "panic"}},
		{expr: `x(abc.*|\d+)def`, whole: []string{"def"}},
		{expr: `x(abc.*|defg.*)y`, whole: []string{"abc", "defg"}},
		{expr: `(abc)+d`, whole: []string{"abc"}},
		{expr: `(abc){2}d`, whole: []string{"abcabcd"}},
		{expr: `(abc){2,}d`, whole: []string{"abcabc"}},
		{expr: `ab(cd)*efg`, whole: []string{"efg"}},
		{expr: `^foo\b bar$`, whole: []string{"foo bar"}},
		{expr: `Ünï`, whole: []string{"Ünï"}},
		{expr: strings.Repeat("x", 10) + strings.Repeat("y", 10), whole: []string{strings.Repeat("x", 6) + strings.Repeat("y", 10)}},
		{expr: `(a|b|c|d)(a|b|c|d)(a|b|c|d)end`, whole: []string{"aend", "bend", "cend", "dend"}},

		{expr: `(?i)OOM`, whole: []string{"oom"}},
		{expr: `(?i)oom-kill`, whole: append([]string{"oom-kill"}, folded...)},
		{expr: `(?i)fehler é`, whole: []string{"fehler "}},
		{expr: `(?i:k)abc`, whole: append([]string{"kabc"}, folded...)},
		{expr: `[kK]abc`, whole: []string{"kabc"}},
		{expr: `[kK\x{212A}]abc`, whole: []string{"kabc", "\u212aabc"}},
		{expr: "ab\uFFFDcde", whole: []string{"cde"}},

		{expr: `first\nsecond`, whole: []string{"second"}},
		{expr: `the first\nx`, whole: []string{"the first"}, last: []string{}},
		{expr: `(?s)the first.*second`, whole: []string{"the first"}, last: []string{"second"}},
		{expr: `(one\n|other)end`, whole: []string{"end"}, last: []string{"end"}},
		{expr: `abc(\n|d)`, whole: []string{"abc"}, last: []string{}},
		{expr: `start(abc\ndef.*|gh.*)`, whole: []string{"start"}, last: []string{"def", "gh"}},

		{expr: `\d+`},
		{expr: `a`},
		{expr: `a|foo`},
		{expr: `(foo)?`},
		{expr: `.*`},
		{expr: `[^\x00-\x{10FFFF}]`},
		{expr: `\w+ \w+`},
	} {
		re, err := syntax.Parse(tt.expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		whole, last := requiredLiterals(re)
		if !slices.Equal(whole, tt.whole) {
			t.Errorf("%s: literals %q, want %q", tt.expr, whole, tt.whole)
		}
		if tt.last == nil {
			tt.last = tt.whole
		}
		if !slices.Equal(last, tt.last) {
			t.Errorf("%s: literals behind the last newline %q, want %q", tt.expr, last, tt.last)
		}
	}
}

func TestProgramSize(t *testing.T) {
	for _, expr := range []string{
		"abc", "a|b|c", "(a)(?:b)", "a*b+c?", "a{3}", "a{2,5}", "a{2,}", "a{0,3}", `\d+[\S ]x.`, "((ab){10}c){20}",
		`Killed process \d+ (.+) total-vm:\d+kB, anon-rss:\d+kB, file-rss:\d+kB.*`, `(?i)(foo|bar|baz)+$`,
	} {
		re, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		// Without the instructions for failing, the end and the whole's bounds; Simplify may save
		// some.
		truth := len(prog.Inst) - 2
		if got := programSize(re); got < truth || got > truth+truth/4+2 {
			t.Errorf("%s: %d instructions, in truth %d", expr, got, truth)
		}
	}
}

func TestNewlines(t *testing.T) {
	for _, tt := range []struct {
		expr        string
		least, most int
	}{
		{`a`, 0, 0},
		{`a\nb`, 1, 1},
		{"a\nb", 1, 1},
		{`a(\nb|c)`, 0, 1},
		{`(a\n){2,5}`, 2, 5},
		{`(a\n)?b\n`, 1, 2},
		{`(a\n)*`, 0, unlimited},
		{`(a\n)+b`, 1, unlimited},
		{`((a\n)*|b)c\n`, 1, unlimited},
		{`(?s)a.*b\s[^x]`, 0, 0},
		{`(a*){3}`, 0, 0},
		{`(\n){0}`, 0, 0},
		{`(?:\n{1000})`, 1000, 1000},
	} {
		re, err := syntax.Parse(tt.expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if least, most := newlines(re); least != tt.least || most != tt.most {
			t.Errorf("%q: %d to %d newlines, want %d to %d", tt.expr, least, most, tt.least, tt.most)
		}
	}
}
