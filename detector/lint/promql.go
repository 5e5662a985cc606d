package lint

import (
	"regexp"
	"strconv"
	"strings"
)

// selector is a series selector of PromQL: metric{label="value"}.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, op, value string }

const (
	promString  = `"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|` + "`[^`]*`"
	promMatcher = `([\w:]+)\s*([=!~]+)\s*(` + promString + `)\s*,?\s*`
)

var (
	stringOrComment  = regexp.MustCompile(promString + `|#[^\n]*`)
	stringOrSelector = regexp.MustCompile(promString + `|([\w:]*)\s*\{\s*((?:` + promMatcher + `)*)\}`)
	oneMatcher       = regexp.MustCompile(promMatcher)
)

// selectors finds the selectors with matchers in an expression. It is not a PromQL
// parser, because that module would be larger than Kernosis. It skips everything else,
// including strings and comments.
func selectors(expr string) []selector {
	expr = stringOrComment.ReplaceAllStringFunc(expr, func(part string) string {
		if part[0] == '#' {
			return ""
		}
		return part
	})
	var out []selector
	for _, found := range stringOrSelector.FindAllStringSubmatch(expr, -1) {
		if !strings.HasSuffix(found[0], "}") {
			continue // a string
		}
		s := selector{metric: found[1]}
		for _, m := range oneMatcher.FindAllStringSubmatch(found[2], -1) {
			s.matchers = append(s.matchers, matcher{m[1], m[2], unquote(m[3])})
			if m[1] == "__name__" && m[2] == "=" {
				s.metric = unquote(m[3])
			}
		}
		out = append(out, s)
	}
	return out
}

// unquote returns the value of a quoted string.
func unquote(q string) string {
	inner := q[1 : len(q)-1]
	switch q[0] {
	case '`':
		return inner
	case '\'':
		inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, `'`), `"`, `\"`)
	}
	if v, err := strconv.Unquote(`"` + inner + `"`); err == nil {
		return v
	}
	return inner
}
