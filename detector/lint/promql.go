package lint

import (
	"strconv"
	"strings"
)

// selector is a series selector of PromQL: metric{label="value"}.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, op, value string }

// selectors finds the selectors with matchers in an expression. It is no parser of
// PromQL, whose module would weigh more than Kernosis: it reads over what it
// doesn't know, texts and comments included.
func selectors(expr string) []selector {
	var out []selector
	s := scanner{text: expr}
	name := ""
	for !s.done() {
		s.space()
		switch c := s.peek(); {
		case c == '"' || c == '\'' || c == '`':
			s.quoted()
			name = ""
		case c == '{':
			s.pos++
			if m, ok := s.matchers(); ok {
				for _, l := range m {
					if l.label == "__name__" && l.op == "=" {
						name = l.value
					}
				}
				out = append(out, selector{name, m})
			}
			name = ""
		case isName(c):
			name = s.name()
		default:
			s.pos++
			name = ""
		}
	}
	return out
}

type scanner struct {
	text string
	pos  int
}

func (s *scanner) done() bool { return s.pos >= len(s.text) }

func (s *scanner) peek() byte {
	if s.done() {
		return 0
	}
	return s.text[s.pos]
}

func isName(c byte) bool {
	return c == '_' || c == ':' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (s *scanner) space() {
	for !s.done() {
		switch c := s.peek(); {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			s.pos++
		case c == '#':
			for !s.done() && s.peek() != '\n' {
				s.pos++
			}
		default:
			return
		}
	}
}

func (s *scanner) name() string {
	start := s.pos
	for !s.done() && isName(s.peek()) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// quoted reads a text in quotation marks.
func (s *scanner) quoted() (string, bool) {
	quote, start := s.peek(), s.pos
	for s.pos++; !s.done(); s.pos++ {
		switch c := s.peek(); {
		case c == '\\' && quote != '`':
			s.pos++
		case c == quote:
			s.pos++
			return unquote(s.text[start:s.pos]), true
		}
	}
	return "", false
}

func unquote(q string) string {
	inner := q[1 : len(q)-1]
	if q[0] == '`' {
		return inner
	}
	if q[0] == '\'' {
		inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, `'`), `"`, `\"`)
	}
	if v, err := strconv.Unquote(`"` + inner + `"`); err == nil {
		return v
	}
	return inner
}

// matchers reads what stands between braces.
func (s *scanner) matchers() (out []matcher, ok bool) {
	for {
		s.space()
		if s.peek() == '}' {
			s.pos++
			return out, true
		}
		m := matcher{label: s.name()}
		s.space()
		for strings.IndexByte("=!~", s.peek()) >= 0 && !s.done() {
			m.op += string(s.peek())
			s.pos++
		}
		s.space()
		if c := s.peek(); m.label == "" || m.op == "" || c != '"' && c != '\'' && c != '`' {
			return nil, false
		}
		if m.value, ok = s.quoted(); !ok {
			return nil, false
		}
		out = append(out, m)
		s.space()
		if s.peek() == ',' {
			s.pos++
		}
	}
}
