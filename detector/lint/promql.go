package lint

import (
	"strconv"
	"strings"
	"text/scanner"
)

// selector is a series selector of PromQL: metric{label="value"}.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, op, value string }

// selectors finds the selectors with matchers in an expression. It is not a PromQL
// parser, because that module would be larger than Kernosis. It skips everything else,
// including strings and comments.
func selectors(expr string) []selector {
	var out []selector
	name := ""
	t := newTokens(expr)
	for token := t.next(); token != scanner.EOF; token = t.next() {
		if token == scanner.Ident {
			name = t.TokenText()
			continue
		}
		if token == '{' {
			if m, ok := t.matchers(); ok {
				for _, l := range m {
					if l.label == "__name__" && l.op == "=" {
						name = l.value
					}
				}
				out = append(out, selector{name, m})
			}
		}
		name = ""
	}
	return out
}

type tokens struct{ scanner.Scanner }

func newTokens(expr string) *tokens {
	t := &tokens{}
	t.Init(strings.NewReader(expr))
	t.Mode = scanner.ScanIdents | scanner.ScanStrings | scanner.ScanRawStrings | scanner.ScanChars
	t.IsIdentRune = func(c rune, _ int) bool {
		return c == '_' || c == ':' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	t.Error = func(*scanner.Scanner, string) {} // Prometheus reports it
	return t
}

// next returns the next token that is not part of a comment.
func (t *tokens) next() rune {
	token := t.Scan()
	for token == '#' {
		for c := t.Peek(); c != '\n' && c != scanner.EOF; c = t.Peek() {
			t.Next()
		}
		token = t.Scan()
	}
	return token
}

// matchers reads the matchers up to the closing brace.
func (t *tokens) matchers() (out []matcher, ok bool) {
	for token := t.next(); token != '}'; token = t.next() {
		if token == ',' && len(out) > 0 {
			continue
		}
		if token != scanner.Ident {
			return nil, false
		}
		m := matcher{label: t.TokenText()}
		for token = t.next(); token == '=' || token == '!' || token == '~'; token = t.next() {
			m.op += t.TokenText()
		}
		if token != scanner.String && token != scanner.RawString && token != scanner.Char || m.op == "" {
			return nil, false
		}
		if m.value, ok = unquote(t.TokenText()); !ok {
			return nil, false
		}
		out = append(out, m)
	}
	return out, true
}

// unquote returns the value of a quoted string, and false if the closing quote is missing.
func unquote(q string) (string, bool) {
	if len(q) < 2 || q[len(q)-1] != q[0] {
		return "", false
	}
	inner := q[1 : len(q)-1]
	switch q[0] {
	case '`':
		return inner, true
	case '\'':
		inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, `'`), `"`, `\"`)
	}
	if v, err := strconv.Unquote(`"` + inner + `"`); err == nil {
		return v, true
	}
	return inner, true
}
