package lint

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/logpattern"
)

// costly is the number of instructions above which matching a line against an expression
// is slow: half of the allowed number, six times the largest of NPD's expressions.
const costly = 500

// Check returns all findings: on rules in their order, then on conditions and alerts.
func Check(in Input, c *Corpus, k Kernels) []Finding {
	var out []Finding
	rules := in.judged(c)
	for i := range rules {
		r := &rules[i]
		if r.Context {
			continue
		}
		report := func(l Level, code string, suggest []string, format string, args ...any) {
			out = append(out, Finding{File: r.File, Line: r.Line, Level: l, Code: code, Message: r.Reason + ": " + fmt.Sprintf(format, args...), Suggest: suggest})
		}
		in.names(r.Rule, report)
		if r.Expr == "" {
			continue
		}
		if o := in.same(i); o != nil {
			report(Warning, Duplicate, nil, "has the same pattern as %s:%d (%s)", o.File, o.Line, o.Reason)
		}
		if r.mistake != nil {
			report(Error, BadPattern, nil, "%v", r.mistake)
			continue
		}
		if shape(r, report) && r.Kernel {
			r.wording(rules, k, report)
		}
	}
	return append(append(out, in.unset()...), in.alerts()...)
}

// unset reports conditions that no rule sets: they stay Unknown.
func (in *Input) unset() []Finding {
	var out []Finding
	for _, c := range in.Conditions {
		if c.File != "" && !slices.ContainsFunc(in.Rules, func(r Rule) bool { return r.Condition == c.Type }) {
			out = append(out, Finding{File: c.File, Line: c.Line, Level: Warning, Code: Unset, Message: "condition " + c.Type + ": no rule sets it"})
		}
	}
	return out
}

// judgedRule is a rule with a judge of its pattern, or the error if the pattern can't be
// compiled. A rule without a pattern has neither.
type judgedRule struct {
	*Rule
	*judge
	mistake error
}

func (in *Input) judged(c *Corpus) []judgedRule {
	x := newIndex(c)
	rules := make([]judgedRule, len(in.Rules))
	for i := range in.Rules {
		r := &rules[i]
		if r.Rule = &in.Rules[i]; r.Expr != "" {
			r.judge, r.mistake = newJudge(r.Rule, x)
		}
	}
	return rules
}

// reporter records a finding on the rule that is being checked.
type reporter func(l Level, code string, suggest []string, format string, args ...any)

// names reports ambiguous names.
func (in *Input) names(r *Rule, report reporter) {
	switch {
	case r.Condition != "" && r.Healthy == r.Reason:
		report(Warning, ReasonIsHealthy, nil, "condition %s also has this reason while nothing is wrong: rename one of them", r.Condition)
	case r.Reason == r.Condition:
		report(Info, ReasonCondition, nil, "is also the name of its condition")
	case slices.ContainsFunc(in.Conditions, func(c Condition) bool { return c.Type == r.Reason }):
		report(Warning, ReasonCondition, nil, "is the name of a condition that this rule does not set")
	}
}

// same returns the first rule before rule i with the same pattern for the same
// condition on the same log.
func (in *Input) same(i int) *Rule {
	r := &in.Rules[i]
	for k := range in.Rules[:i] {
		o := &in.Rules[k]
		if !o.Context && o.Expr == r.Expr && o.Logs == r.Logs && o.Condition == r.Condition && o.AnchorEnd == r.AnchorEnd {
			return o
		}
	}
	return nil
}

// shape reports findings on the expression itself, independent of the lines. It reports whether
// the expression can match anything.
func shape(r *judgedRule, report reporter) bool {
	if len(r.set.Unfiltered()) > 0 {
		report(Warning, Costly, nil, "has no fixed text: the expression runs on every line")
	}
	if prog, err := syntax.Compile(r.tree.Simplify()); err == nil && len(prog.Inst) > costly {
		report(Warning, Costly, nil, "compiles to %d instructions: matching a line with its fixed text takes milliseconds", len(prog.Inst))
	}
	if !r.AnchorEnd {
		return true
	}
	buffer := r.Lines
	if buffer == 0 {
		buffer = logpattern.NPDLines
	}
	if n := fewestNewlines(r.tree); n >= buffer {
		report(Error, Buffer, nil, "spans %d lines, but bufferSize is %d: never matches", n+1, buffer)
		return false
	}
	if endsInNewline(r.tree) {
		report(Error, EndAnchor, nil, "ends in a newline, but the match must end with the text of the last line: never matches")
		return false
	}
	return true
}

// fewestNewlines returns the minimum number of newlines in a match.
func fewestNewlines(t *syntax.Regexp) int {
	switch t.Op {
	case syntax.OpLiteral:
		return strings.Count(string(t.Rune), "\n")
	case syntax.OpCharClass:
		if len(t.Rune) == 2 && t.Rune[0] == '\n' && t.Rune[1] == '\n' {
			return 1
		}
	case syntax.OpConcat, syntax.OpCapture:
		n := 0
		for _, sub := range t.Sub {
			n += fewestNewlines(sub)
		}
		return n
	case syntax.OpAlternate:
		n := fewestNewlines(t.Sub[0])
		for _, sub := range t.Sub[1:] {
			n = min(n, fewestNewlines(sub))
		}
		return n
	case syntax.OpPlus:
		return fewestNewlines(t.Sub[0])
	case syntax.OpRepeat:
		return t.Min * fewestNewlines(t.Sub[0])
	}
	return 0
}

// endsInNewline reports whether every match ends in a newline.
func endsInNewline(t *syntax.Regexp) bool {
	switch t.Op {
	case syntax.OpLiteral:
		return t.Rune[len(t.Rune)-1] == '\n'
	case syntax.OpConcat:
		return endsInNewline(t.Sub[len(t.Sub)-1])
	case syntax.OpCapture, syntax.OpPlus:
		return endsInNewline(t.Sub[0])
	}
	return false
}
