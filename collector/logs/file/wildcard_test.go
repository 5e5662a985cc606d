package file

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// viaRegexp returns what a wildcard has to find.
func viaRegexp(re *regexp.Regexp, line []byte) ([]byte, bool) {
	return (&extractor{re: re}).extract(line)
}

func checkWildcard(t *testing.T, expr string, line []byte) {
	t.Helper()
	w := parseWildcard(expr)
	if w == nil || bytes.IndexByte(line, '\n') >= 0 {
		return
	}
	want, ok := viaRegexp(regexp.MustCompile(expr), line)
	got, found := w.find(line)
	if found != ok || !bytes.Equal(got, want) {
		t.Fatalf("%q in %q: got %q, %v; want %q, %v", expr, line, got, found, want, ok)
	}
}

func TestWildcard(t *testing.T) {
	for expr, isOne := range map[string]bool{
		`kernel: \[.*\] (.*)`: true, `msg="([^\n]*)"`: true, ".*a(.*)b.*": true, "(?s)a(.*)": true, "(.*)a": true, "a.*(.*)b": true,
		"a(.*).*b": true, "a.*b(.*)a": true, "ab(.*)b.*b": true, "(.*).*a": true,
		"": false, ".*": false, "(.*)": false, "a.*?b": false, "a+": false, "[ab].*": false, "(?i)a(.*)": false, "a|b": false,
		"a(b)": false, "a.b(.*)": false, "a(b)?": false, "(?m)^a(.*)": false, `\ba(.*)`: false, "a(.*)\uFFFD": false,
		"a": false, "^a(.*)": false, "a(.*)$": false, "a.*b": false, "(a.*)b": false, "(a)(.*)": false, "a(.*)b(.*)": false,
	} {
		if got := parseWildcard(expr) != nil; got != isOne {
			t.Errorf("parseWildcard(%q): %v", expr, got)
		}
		for _, line := range []string{
			"", "a", "b", "ab", "ba", "aba", "abab", "baab", "xaxbxaxbx", "aab b", "abb", "kernel: [1] x] y", "kernel: [1", "x kernel: [ kernel: [1] z",
			`msg="a" msg="b" c`, `msg="`, `msg=""`, "a\xffb\xc3", strings.Repeat("ab", 20),
		} {
			checkWildcard(t, expr, []byte(line))
		}
	}
}

func FuzzWildcard(f *testing.F) {
	f.Add("a*b(*)", []byte("aabab"))
	f.Add("(*)a*b", []byte("xaabxxb"))
	f.Add("ab*(*)ab", []byte("ab abab"))
	f.Add("*a(*)*", []byte("a\xff"))
	// The star means ".*": that way the mutator makes more valid expressions.
	f.Fuzz(func(t *testing.T, pattern string, line []byte) {
		expr := strings.ReplaceAll(pattern, "*", ".*")
		if len(expr) > 100 || len(line) > 100 {
			return
		}
		if _, err := regexp.Compile(expr); err == nil {
			checkWildcard(t, expr, line)
		}
	})
}
