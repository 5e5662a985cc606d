package detector

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
)

var (
	// groupName matches the names of groups that can be fields: CEL can't select others.
	groupName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// groupOpening finds named groups in a pattern that does not compile.
	groupOpening = regexp.MustCompile(`\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>`)
)

// maxScraped bounds the groups taken from an invalid pattern.
const maxScraped = 100

// patternOwner is the rule that a pattern of a set belongs to.
type patternOwner struct {
	rule  *Rule
	clear bool // it is the rule's clearPattern
}

func isLogKind(k event.Kind) bool { return k == event.Log }

// isLog reports whether the rule matches log lines.
func (r *Rule) isLog() bool { return len(r.Events) == 1 && r.Events[0] == event.Log }

// PatternName returns the name of a log rule's pattern in [RuleSet.PatternSet] and [Stats].
func (r *Rule) PatternName() string { return r.Name + "/pattern" }

// ClearPatternName is like PatternName, for the clearPattern.
func (r *Rule) ClearPatternName() string { return r.Name + "/clearPattern" }

// pattern returns the rule's pattern for the matcher.
func (r *Rule) pattern() logpattern.Pattern {
	return logpattern.Pattern{Name: r.PatternName(), Expr: r.Pattern, Lines: r.Lines, AnchorEnd: r.AnchorEnd, Logs: r.Logs}
}

func (r *Rule) clearPattern() logpattern.Pattern {
	return logpattern.Pattern{Name: r.ClearPatternName(), Expr: r.ClearPattern, Lines: r.Lines, Logs: r.Logs}
}

// PatternSet returns the compiled patterns of all log rules in the order of the
// rules, for the log sources: they can drop lines that none of them matches. It is
// never nil, and shared with all engines of the rule set.
func (s *RuleSet) PatternSet() *logpattern.Set { return s.patterns }

// checkPatterns checks the keys of log rules, and returns the compiler for the rule's expressions.
func (r *loadedRule) checkPatterns(c *compiler) *compiler {
	if !r.isLog() {
		for _, key := range []string{"pattern", "clearPattern", "logs", "lines", "anchorEnd", "fallbackFor", "rateLimit"} {
			if r.Keys[key] != nil && r.kindsKnown() {
				r.Errorf(key, "is only for log rules (events: [log])")
			}
		}
		if i := slices.Index(r.Events, event.Log); i >= 0 && len(r.Events) > 1 {
			r.item("events", i, "log can't be combined with other kinds: write a separate rule with a pattern")
		}
		return c
	}
	if r.Keys["pattern"] == nil {
		r.Reader.Errorf(r.Node, r.Path, "pattern is missing: log rules need an expression for their lines")
		return c
	}
	if n := r.Keys["logs"]; n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.Errorf("logs", "list is empty: omit it for all logs")
	}
	for i, name := range r.Logs {
		if name != "" && !logpattern.ValidLog(name) {
			r.item("logs", i, "%q is not a log name: want letters, digits, dots, dashes and underscores; patterns are not supported", name)
		}
	}
	stems := sourceStems()
	for i, stem := range r.FallbackFor {
		if !slices.Contains(stems, stem) {
			r.item("fallbackFor", i, "no source reports %q%s: want event kinds such as oomkill", stem, document.Suggest(stem, stems))
		}
	}
	groups, ok := r.checkPattern("pattern", r.pattern())
	if r.Keys["clearPattern"] != nil {
		if clear, ok := r.checkPattern("clearPattern", r.clearPattern()); ok {
			r.checkClearGroups(clear)
		}
	}
	if !ok {
		// The group names are enough to check the other keys.
		groups = nil
		for _, m := range groupOpening.FindAllStringSubmatch(r.Pattern, maxScraped) {
			groups = append(groups, m[1])
		}
	}
	v, err := c.withGroups(groups)
	if err != nil {
		r.Errorf("pattern", "%v", err)
		return c
	}
	return v
}

// sourceStems returns the stems whose sources report whether they are up.
func sourceStems() []string {
	var out []string
	for _, k := range event.Kinds() {
		switch stem := k.Stem(); {
		case k == event.Log, k == event.Check, k == event.Gauge, k == event.Source, k == event.Lost, k == event.Canary, slices.Contains(out, stem):
		default:
			out = append(out, stem)
		}
	}
	return out
}

// checkPattern compiles a single pattern and returns its named groups.
func (r *loadedRule) checkPattern(key string, p logpattern.Pattern) (groups []string, ok bool) {
	p.Name = key // the rule's own name may be invalid
	if p.Expr == "" {
		if n := r.Keys[key]; n.Value == "" {
			r.Errorf(key, "is empty")
		}
		return nil, false
	}
	set, err := logpattern.Compile([]logpattern.Pattern{p})
	if err != nil {
		r.patternErrors(key, p, err)
		return nil, false
	}
	re, err := regexp.Compile(set.Pattern(0).Expr)
	if err != nil {
		r.Errorf(key, "%v", err)
		return nil, false
	}
	ok = true
	for _, g := range re.SubexpNames()[1:] {
		switch {
		case g == "":
		case !groupName.MatchString(g) || slices.Contains([]string{"true", "false", "null", "in"}, g):
			r.ErrorAt(key, runeIndex(p.Expr, "<"+g+">"), "group %q can't be used as %s: rename it", g, matchPrefix+g)
			ok = false
		case slices.Contains(groups, g):
			r.ErrorAt(key, runeIndex(p.Expr, "<"+g+">"), "group %q is defined twice", g)
			ok = false
		}
		groups = append(groups, g)
	}
	return slices.DeleteFunc(groups, func(g string) bool { return g == "" }), ok
}

// patternErrors reports each mistake at its key, and one in the expression at its offset.
func (r *loadedRule) patternErrors(key string, p logpattern.Pattern, err error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // errors.Join has no type to ask for
		list = joined.Unwrap()
	}
	for _, err := range list {
		if pe := (*logpattern.Error)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		part, msg, _ := strings.Cut(err.Error(), ": ")
		switch {
		case part == "expression":
			offset := 0
			if se := (*syntax.Error)(nil); errors.As(err, &se) {
				msg = se.Code.String() + ": " + strconv.Quote(se.Expr)
				if strings.Count(p.Expr, se.Expr) == 1 {
					offset = runeIndex(p.Expr, se.Expr)
				}
			}
			r.ErrorAt(key, offset, "%s", msg)
		case part == "logs" && key == "clearPattern":
			// The list is the same as for pattern, where it is reported.
		case r.Keys[part] != nil && key == "pattern":
			r.Errorf(part, "%s", msg)
		default:
			r.Errorf(key, "%v", err)
		}
	}
}

// runeIndex is strings.Index in characters, but 0 if part is not in s.
func runeIndex(s, part string) int {
	return utf8.RuneCountInString(s[:max(0, strings.Index(s, part))])
}

// checkClearGroups checks that clearPattern captures the groups that groupBy uses.
func (r *loadedRule) checkClearGroups(groups []string) {
	for _, name := range r.GroupBy {
		if g, ok := strings.CutPrefix(name, matchPrefix); ok && !slices.Contains(groups, g) {
			r.Errorf("clearPattern", "has no group %q, so it ends no problem grouped by %s", g, name)
		}
	}
}

// patterns compiles the patterns of all rules to one set. Call it after all rules
// are loaded. It returns nil if there is any mistake.
func (l *loader) patterns() (*logpattern.Set, []patternOwner) {
	if l.mistakes() != nil {
		return nil, nil
	}
	var list []logpattern.Pattern
	var owners []patternOwner
	for _, name := range l.order {
		r := l.rules[name]
		if !r.isLog() {
			continue
		}
		list, owners = append(list, r.pattern()), append(owners, patternOwner{rule: r.Rule})
		if r.ClearPattern != "" {
			list, owners = append(list, r.clearPattern()), append(owners, patternOwner{rule: r.Rule, clear: true})
		}
	}
	set, err := logpattern.Compile(list)
	if err == nil {
		return set, owners
	}
	// Each pattern is valid by itself: only the set as a whole is not.
	blame := owners[len(owners)-1]
	if pe := (*logpattern.Error)(nil); errors.As(err, &pe) {
		blame, err = owners[pe.Index], pe.Err
	}
	key := "pattern"
	if blame.clear {
		key = "clearPattern"
	}
	l.rules[blame.rule.Name].Errorf(key, "%v", err)
	return nil, nil
}
