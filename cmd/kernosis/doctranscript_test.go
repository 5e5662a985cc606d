package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// docVarying returns patterns of output that differs with each run: as shown on pages, and what may
// be there instead.
func docVarying() []struct{ shown, instead string } {
	return []struct{ shown, instead string }{
		{`in cgroup /…`, `in \S+ \S+`},
		{`…`, `.*?`},
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?`, ""}, // a recent time, or the same time
		{`\d\d:\d\d:\d\d(?:\.\d+)?`, `\d\d:\d\d:\d\d(?:\.\d+)?`},
		{`(?:\d+(?:\.\d+)?(?:ns|µs|ms|s|m|h))+\b`, `(?:\d+(?:\.\d+)?(?:ns|µs|ms|s|m|h))+`},
		{`\d{8}-\d{6}-[0-9a-f]{6}`, `\d{8}-\d{6}-[0-9a-f]{6}`}, // ID of a run by hand
		{`-[0-9a-f]{16}\b`, `(-[0-9a-f]{16})`},                 // name of a run by a Trigger
		{`\[\d{3,}\]`, `\[\d+\]`},                              // a process
		{`thread \d+`, `thread \d+`},
		{`\b40265\d{5}\b`, `\d+`}, // a network namespace
		{`\w+\+0x[0-9a-f]+`, `\w+\+0x[0-9a-f]+`},
		{`\banon_pipe_write\b`, `(?:anon_)?pipe_write`}, // name in older kernels
		// The number of shipped objects grows.
		{`\d+ rules, \d+ conditions`, `\d+ rules, \d+ conditions`},
		{`operation_sets=\d+ triggers=\d+`, `operation_sets=\d+ triggers=\d+`},
		{`\(\d+(?:\.\d+)? (?:B|KiB|MiB)\)`, `\(\d+(?:\.\d+)? (?:B|KiB|MiB)\)`},
	}
}

// recentTime replaces a time within an hour of now in output.
const recentTime = "(recently)"

// docPattern returns an expression for the output that a page shows, with a group for each name of a
// run by a Trigger. Any whitespace matches any other, because tables are as wide as their contents,
// and terminals wrap lines.
func docPattern(shown string) string {
	var parts []string
	for _, v := range docVarying() {
		parts = append(parts, "("+v.shown+")")
	}
	varying := regexp.MustCompile(strings.Join(parts, "|"))
	var out strings.Builder
	fixed := func(text string) {
		for i, word := range regexp.MustCompile(`\s+`).Split(text, -1) {
			if i > 0 {
				out.WriteString(`\s+`)
			}
			out.WriteString(regexp.QuoteMeta(word))
		}
	}
	shown = strings.TrimSpace(shown)
	at := 0
	for _, m := range varying.FindAllStringSubmatchIndex(shown, -1) {
		fixed(shown[at:m[0]])
		at = m[1]
		for i, v := range docVarying() {
			if m[2+2*i] < 0 {
				continue
			}
			if v.instead == "" {
				v.instead = "(?:" + regexp.QuoteMeta(shown[m[0]:m[1]]) + "|" + regexp.QuoteMeta(recentTime) + ")"
			}
			out.WriteString(v.instead)
		}
	}
	fixed(shown[at:])
	return out.String()
}

var wholeTime = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?`)

// withRecentTimes replaces times within an hour of now with recentTime.
func withRecentTimes(text string) string {
	return wholeTime.ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse("2006-01-02T15:04:05", strings.TrimSuffix(strings.Replace(found, " ", "T", 1), "Z"))
		if err == nil && time.Since(at).Abs() < time.Hour {
			return recentTime
		}
		return found
	})
}

// matchesDoc reports whether output matches what a page shows. runs has the actual names of the
// page's runs.
func matchesDoc(shown, output string) (runs map[string]string, ok bool) {
	groups := regexp.MustCompile(`(?s)^\s*` + docPattern(shown) + `\s*$`).FindStringSubmatch(withRecentTimes(output))
	if groups == nil {
		return nil, false
	}
	runs = map[string]string{}
	for i, name := range regexp.MustCompile(`-[0-9a-f]{16}\b`).FindAllString(shown, -1) {
		runs[name] = groups[1+i]
	}
	return runs, true
}

// linesOfDoc finds each line that a page shows, in any order, among lines of output that no earlier
// call has found. It returns the first missing line.
func linesOfDoc(shown []string, output string, used map[int]bool) (missing string, ok bool) {
	end := strings.LastIndexByte(output, '\n') + 1
	lines := strings.Split(withRecentTimes(output[:end]), "\n")
	found := map[int]bool{}
	for _, line := range shown {
		if strings.TrimSpace(line) == "…" {
			continue
		}
		pattern := regexp.MustCompile(docPattern(line))
		here := -1
		for i := range lines {
			if !used[i] && !found[i] && pattern.MatchString(lines[i]) {
				here = i
				break
			}
		}
		if here < 0 {
			return line, false
		}
		found[here] = true
	}
	for i := range found {
		used[i] = true
	}
	return "", true
}

func TestMatchesDoc(t *testing.T) {
	now := time.Now().UTC().Format("2006-01-02T15:04:05Z")
	for _, c := range []struct {
		shown, output string
		want          bool
	}{
		{"144 lines: ok", "144 lines: ok\n", true},
		{"144 lines: ok", "145 lines: ok\n", false},
		{"144 lines: ok", "144 lines: ok\nand more\n", false},
		{"144 lines: ok\n…", "144 lines: ok\nand more\n", true},
		{"a  b\n  c", "a b c", true},
		{"13:26:33.699 hangs for 10s in anon_pipe_write+0x43, pid[811]", "01:02:03.4 hangs for 1m2.5s in pipe_write+0x1, pid[3]", true},
		{"13:26:33.699 hangs", "it hangs", false},
		{"at 2026-11-25T09:00:00.000Z", "at 2026-11-25T09:00:00.000Z", true},
		{"at 2026-11-25T09:00:00.000Z", "at 2026-11-25T09:00:01.000Z", false},
		{"at 2026-11-25T09:00:00Z", "at " + now, true},
		{"rules[0].message", "rules[1].message", false},
		{"in cgroup /… waits", "in unit a.service waits", true},
		{"run hung-task-vm-e3e362a503e31f3d", "run hung-task-vm-0000000000000000", true},
		{"run hung-task-vm-e3e362a503e31f3d", "run oom-kill-vm-0000000000000000", false},
	} {
		if _, got := matchesDoc(c.shown, c.output); got != c.want {
			t.Errorf("%q and %q: %v", c.shown, c.output, got)
		}
	}
	used := map[int]bool{}
	output := "time=x level=INFO msg=a\n1 up\n2 up\n3 do"
	for _, c := range []struct {
		shown string
		want  bool
	}{{"2 up\n…\nlevel=INFO msg=a", true}, {"2 up", false}, {"1 up\n1 up", false}, {"1 up", true}, {"3 do", false}} {
		if missing, ok := linesOfDoc(strings.Split(c.shown, "\n"), output, used); ok != c.want {
			t.Errorf("%q: %v, %q", c.shown, ok, missing)
		}
	}
}
