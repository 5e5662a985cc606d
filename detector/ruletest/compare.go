package ruletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/detector/problem"
)

// compare reports how the engine differs from what a check expects.
func (r *run) compare(c check) []Failure {
	var out []Failure
	failf := func(line int, format string, args ...any) {
		out = append(out, Failure{Line: line, At: c.at, Text: fmt.Sprintf(format, args...)})
	}
	if c.hasProblems {
		have := slices.DeleteFunc(r.engine.Problems(), func(p problem.Problem) bool {
			return len(r.test.rules) > 0 && !slices.Contains(r.test.rules, p.Rule)
		})
		for _, w := range c.problems {
			i := best(w, have)
			if i < 0 {
				failf(w.line, "no %s problem of %s%s%s", w.state, w.text["rule"], ofGroup(w), listed(have))
				continue
			}
			for _, d := range differences(w, have[i]) {
				failf(w.line, "%s%s: %s", w.text["rule"], ofGroup(w), d)
			}
			have = slices.Delete(have, i, i+1)
		}
		for _, p := range have {
			if p.State == problem.Firing {
				failf(c.line, "unexpected problem: %s [%s] ×%d: %s", p.Rule, p.Group, p.Count, p.Message)
			}
		}
	}
	for _, w := range c.conditions {
		for _, cond := range r.engine.Conditions() {
			if cond.Type != w.typ {
				continue
			}
			if w.status != "" && cond.Status != w.status {
				failf(w.line, "condition %s is %s (%s: %s), want %s", w.typ, cond.Status, cond.Reason, cond.Message, w.status)
			}
			if w.hasReason && cond.Reason != w.reason {
				failf(w.line, "condition %s: reason is %s, want %s", w.typ, cond.Reason, w.reason)
			}
			if w.hasMessage && cond.Message != w.message {
				failf(w.line, "condition %s: message is\n\t%q, want\n\t%q", w.typ, cond.Message, w.message)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.transitions)) {
		if have, want := r.shown[name].fired, c.transitions[name]; have != want {
			failf(c.line, "%s fired %d times, want %d", name, have, want)
		}
	}
	return out
}

// best returns the index of the problem that fits the expectation: same rule, state and
// group, and among those the one with the fewest differences. It returns -1 if there is none.
func best(w wantProblem, have []problem.Problem) int {
	at, least := -1, 0
	for i, p := range have {
		group, ok := w.text["group"]
		if p.Rule != w.text["rule"] || p.State != w.state || ok && p.Group != group {
			continue
		}
		if d := len(differences(w, p)); at < 0 || d < least {
			at, least = i, d
		}
	}
	return at
}

func differences(w wantProblem, p problem.Problem) []string {
	var out []string
	for _, f := range []struct{ name, have string }{
		{"group", p.Group}, {"reason", p.Reason}, {"message", p.Message}, {"subject", p.Subject},
		{"severity", string(p.Severity)}, {"suppressedBy", p.SuppressedBy},
	} {
		if want, ok := w.text[f.name]; ok && want != f.have {
			out = append(out, fmt.Sprintf("%s is\n\t%q, want\n\t%q", f.name, f.have, want))
		}
	}
	if w.count >= 0 && p.Count != uint64(w.count) {
		out = append(out, fmt.Sprintf("count is %d, want %d", p.Count, w.count))
	}
	return out
}

func ofGroup(w wantProblem) string {
	if g, ok := w.text["group"]; ok {
		return " [" + g + "]"
	}
	return ""
}

func listed(have []problem.Problem) string {
	if len(have) == 0 {
		return "; no problem exists"
	}
	var b strings.Builder
	b.WriteString("; problems that exist:")
	for _, p := range have {
		fmt.Fprintf(&b, "\n\t%s %s [%s] ×%d: %s", p.State, p.Rule, p.Group, p.Count, p.Message)
	}
	return b.String()
}
