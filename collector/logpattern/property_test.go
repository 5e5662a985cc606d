package logpattern_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestAgreesWithNaive compares a Matcher with the naive one: random patterns of every kind on
// random lines, over an alphabet with all special cases: both cases, the runes with case variants
// outside ASCII, invalid UTF-8, newlines inside lines.
func TestAgreesWithNaive(t *testing.T) {
	rounds := testenv.Cases(t, 4000)
	matched, sets := 0, 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(1, uint64(round))) //nolint:gosec // repeatable
		patterns := make([]logpattern.Pattern, 1+r.IntN(5))
		for i := range patterns {
			patterns[i] = randomPattern(r, i)
		}
		set, err := logpattern.Compile(patterns)
		if err != nil {
			continue // some span more lines than they declare
		}
		sets++
		m, ref := set.NewMatcher("test"), newNaive(set)
		var hits logpattern.Hits
		var log []string
		for range 12 {
			line := randomLine(r)
			log = append(log, line)
			want := ref.match(line)
			matched += len(want)
			if m.Match([]byte(line), &hits) != (len(want) > 0) || !slices.Equal(describe(set, &hits), want) {
				t.Fatalf("round %d: patterns %+v\nlog %q\nliterals %q\ngot  %q\nwant %q", round, patterns, log, literals(set), describe(set, &hits), want)
			}
		}
	}
	if sets < rounds/2 || matched < rounds {
		t.Errorf("%d sets and %d matches: too few to mean anything", sets, matched)
	}
}

func literals(set *logpattern.Set) [][]string {
	var all [][]string
	for i := range set.Len() {
		all = append(all, set.Literals(i))
	}
	return all
}

func randomPattern(r *rand.Rand, i int) logpattern.Pattern {
	p := logpattern.Pattern{Name: fmt.Sprintf("p%d", i), Expr: randomExpr(r, 3), AnchorEnd: r.IntN(3) == 0}
	if r.IntN(4) != 0 {
		p.Lines = 1 + r.IntN(4)
	}
	return p
}

var atoms = []string{
	"ab", "ba", "abc", "k", "ks", "Task", "é", "É", `\n`, `ab\nba`, "x", `\x{FFFD}`, "\u212a", "ſ",
	"[ab]", "[^a]", `\s`, ".", "(?s:.)", "(?s:.*)", ".*", `\w+`, "(?i:ks)", "(?i:ab)", "(?i:task)", "(?i:é)",
	"^", "$", `\b`, `\B`, `\A`, `\z`, "(?m:^)", "(?m:$)", "(?-m:^)", "[kK]", "[aAbB]", `[\n]`, `[\nab]`,
	"(?P<one>ab?)", "(k)", "(?:)", "[xé]", `\Qab\E`, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
}

func randomExpr(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(3) == 0 {
		return atoms[r.IntN(len(atoms))]
	}
	switch r.IntN(9) {
	case 0:
		return "(?:" + randomExpr(r, depth-1) + ")" + []string{"*", "+", "?", "*?", "{2}", "{1,2}", "{2,}", "{0}"}[r.IntN(8)]
	case 1, 2:
		n := 2 + r.IntN(2)
		subs := make([]string, n)
		for i := range subs {
			subs[i] = randomExpr(r, depth-1)
		}
		return "(?:" + strings.Join(subs, "|") + ")"
	case 3: // as it may be in a configuration: not in a group
		return randomExpr(r, depth-1) + "|" + randomExpr(r, depth-1)
	case 4:
		return "(?i)" + randomExpr(r, depth-1)
	default:
		return randomExpr(r, depth-1) + randomExpr(r, depth-1)
	}
}

func randomLine(r *rand.Rand) string {
	parts := []string{"a", "b", "ab", "ba", "abc", "k", "K", "\u212a", "s", "S", "ſ", "é", "É", " ", "x", "task", "TASK", "\xff", "\xe2\x84", "\uFFFD", "\n", "ta\u017f\u212a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// TestSpansEndInLatestLine checks patterns that span lines against their definition: some text
// that the expression matches as a whole ends in the latest line. (The naive matcher uses the same
// expressions as Matcher for this.)
func TestSpansEndInLatestLine(t *testing.T) {
	exprs := []string{
		`ab\nba`, `a.*\n.*a`, `a(\n.*)?\nb`, `a\n`, `\na`, `(?s)a.*b`, `(?s)a.*?b`, `(\n|x)a`, `a+\n?`,
		`\n\n`, `[^x]x`, `(?:a\n)+b`, `a\s+b`, `x?\n?x`,
	}
	found := 0
	for _, expr := range exprs {
		set, err := logpattern.Compile([]logpattern.Pattern{{Name: "p", Expr: expr, Lines: 3}})
		if err != nil {
			t.Fatal(err)
		}
		full := regexp.MustCompile(`\A(?:` + expr + `)\z`)
		r := rand.New(rand.NewPCG(2, 3)) //nolint:gosec // repeatable
		for range 30 {
			m := set.NewMatcher("")
			var hits logpattern.Hits
			var lines []string
			for range 8 {
				line := strings.Repeat([]string{"a", "b", "x", "ab", "ba"}[r.IntN(5)], r.IntN(3))
				lines = append(lines, line)
				window := strings.Join(lines[max(0, len(lines)-3):], "\n")
				want := false
				for from := range len(window) + 1 {
					for to := max(from, len(window)-len(line)); to <= len(window); to++ {
						want = want || full.MatchString(window[from:to])
					}
				}
				if want {
					found++
				}
				if got := m.Match([]byte(line), &hits); got != want {
					t.Fatalf("%q on %q: %v, want %v", expr, lines, got, want)
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("%d matches: too few to mean anything", found)
	}
}

// FuzzMatch checks that whatever compiles agrees with the naive matcher, and that nothing panics.
func FuzzMatch(f *testing.F) {
	for _, p := range kernelMonitor() {
		f.Add(p.Expr, "INFO: task docker:1 blocked for more than 120 seconds.\x00EXT4-fs error (device sda1): x", uint8(0), true)
	}
	for i, s := range [][2]string{
		{`first\n.*second`, "first\x00the second"},
		{`(?i)task`, "TAS\u212a"},
		{`\Qab`, "xab"},
		{`(?s)a.*b|^c$`, "a\x00b\x00c\nd"},
		{`(?P<x>\d+){2}kB`, "12kB"},
		{`(a{100}){10}`, "a"},
		{`[^\x00-\x{10FFFF}]|a\x{FFFD}b`, "a\xffb"},
	} {
		f.Add(s[0], s[1], uint8(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, expr, log string, lines uint8, anchor bool) {
		set, err := logpattern.Compile([]logpattern.Pattern{{Name: "p", Expr: expr, Lines: int(lines % 12), AnchorEnd: anchor}})
		if err != nil || len(log) > 2000 {
			return
		}
		if strings.Contains(expr, "<whole>") {
			return // a name that the naive matcher uses
		}
		m, ref := set.NewMatcher("test"), newNaive(set)
		var hits logpattern.Hits
		for line := range strings.SplitSeq(log, "\x00") {
			want := ref.match(line)
			m.Match([]byte(line), &hits)
			if got := describe(set, &hits); !slices.Equal(got, want) {
				t.Fatalf("%q on %q of %q: got %q, want %q; literals %q", expr, line, log, got, want, set.Literals(0))
			}
		}
	})
}
