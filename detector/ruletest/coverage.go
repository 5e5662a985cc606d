package ruletest

import (
	"cmp"
	"slices"

	"github.com/kernosis/kernosis/detector"
)

// Coverage is what the tests have shown of a rule.
type Coverage struct {
	Fires   bool // it fired
	Holds   bool // events of its kinds came in some test and it did not fire
	Clears  bool // it resolved
	Refires bool // it fired again after it resolved, in one test
	// Of log rules: a line matched its pattern, its clearPattern. Holds then means
	// that some line of a log came and it did not fire.
	Matches, ClearMatches bool
}

// Missing returns what the tests have not shown of the rule, of what there is to
// show: an event of a rule without conditions always matches, so nothing holds, and
// a latched problem never clears.
func (c Coverage) Missing(r *detector.Rule) []string {
	var out []string
	for _, m := range []struct {
		shown bool
		what  string
	}{
		{c.Fires, "fires"},
		{c.Holds || r.When == "" && r.Threshold.Count == 0 && r.For == 0 && r.Pattern == "", "does not fire"},
		{c.Clears || r.Latched, "clears"},
		{c.Refires || r.Latched, "flaps"},
		{c.Matches || r.Pattern == "", "pattern matches"},
		{c.ClearMatches || r.ClearPattern == "", "clearPattern matches"},
	} {
		if !m.shown {
			out = append(out, m.what)
		}
	}
	return out
}

// Shown reports whether nothing is missing.
func (c Coverage) Shown(r *detector.Rule) bool { return len(c.Missing(r)) == 0 }

// Gap is a rule of which the tests don't show all.
type Gap struct {
	Rule    string
	File    string // of the rule
	Line    int
	Missing []string // fires, does not fire, clears, flaps, pattern matches, clearPattern matches
}

// Gaps returns what is missing of these rules, in the order of files and lines.
func (r *Report) Gaps(rules []*detector.Rule) []Gap {
	var gaps []Gap
	for _, rule := range rules {
		if missing := r.Coverage[rule.Name].Missing(rule); len(missing) > 0 {
			gaps = append(gaps, Gap{rule.Name, rule.File, rule.Line, missing})
		}
	}
	slices.SortStableFunc(gaps, func(a, b Gap) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return gaps
}
