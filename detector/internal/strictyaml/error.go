package strictyaml

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Error is one mistake in a file.
type Error struct {
	File   string
	Line   int    // from 1; 0 where the whole file is meant
	Column int    // from 1, in characters; 0 where unknown
	Field  string // path of the key, such as "rules[2].when"; empty for the whole file
	Msg    string
}

// Error returns "file:line:column: field: text" without the parts that are unknown.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(e.Line))
		if e.Column > 0 {
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(e.Column))
		}
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Errors is every mistake found, in the order of files and lines.
type Errors []*Error

// Error returns one line a mistake.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each mistake.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Sort orders the mistakes of each file by position, keeping the order of files.
func (es Errors) Sort() {
	order := make(map[string]int)
	for _, e := range es {
		if _, ok := order[e.File]; !ok {
			order[e.File] = len(order)
		}
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
