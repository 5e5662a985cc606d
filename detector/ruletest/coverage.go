package ruletest

import "github.com/kernosis/kernosis/detector"

// coverage is what the tests have shown of a rule.
type coverage struct {
	fires   bool // it fired
	holds   bool // events of its kinds came in some test and it did not fire
	clears  bool // it resolved
	refires bool // it fired again after it resolved, in one test
	// Of log rules: a line matched its pattern, its clearPattern. holds then means
	// that some line of a log came and it did not fire.
	matches, clearMatches bool
}

// missing returns what the tests have not shown of the rule, of what there is to
// show: an event of a rule without conditions always matches, so nothing holds, and
// a latched problem never clears.
func (c coverage) missing(r *detector.Rule) []string {
	var out []string
	for _, m := range []struct {
		shown bool
		what  string
	}{
		{c.fires, "fires"},
		{c.holds || r.When == "" && r.Threshold.Count == 0 && r.For == 0 && r.Pattern == "", "does not fire"},
		{c.clears || r.Latched, "clears"},
		{c.refires || r.Latched, "flaps"},
		{c.matches || r.Pattern == "", "pattern matches"},
		{c.clearMatches || r.ClearPattern == "", "clearPattern matches"},
	} {
		if !m.shown {
			out = append(out, m.what)
		}
	}
	return out
}

// Gap is a rule of which the tests don't show all.
type Gap struct {
	Rule    string
	File    string // of the rule
	Line    int
	Missing []string // fires, does not fire, clears, flaps, pattern matches, clearPattern matches
}
