package ruletest

import "github.com/kernosis/kernosis/detector"

// coverage is the behavior of a rule that the tests have exercised.
type coverage struct {
	fires   bool // it fired
	holds   bool // in some test, events of its kinds came and it did not fire
	clears  bool // it resolved
	refires bool // it fired again after it resolved, in one test
	// Log rules: a line matched the pattern or the clearPattern. holds then means that
	// in some test a log line came and the rule did not fire.
	matches, clearMatches bool
}

// missing returns the behavior that the tests have not exercised. It omits what the rule
// can't do: a rule without a filter fires on every event of its kinds, and a latched
// problem never clears.
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

// Gap is a rule that the tests don't cover completely.
type Gap struct {
	Rule    string
	File    string // of the rule
	Line    int
	Missing []string // fires, does not fire, clears, flaps, pattern matches, clearPattern matches
}
