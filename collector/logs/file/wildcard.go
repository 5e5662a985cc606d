package file

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// wildcard evaluates an expression that consists of texts and ".*" and has one group, as usual for
// messages: `kernel: \[.*\] (.*)`, `msg="([^\n]*)"`. It is much faster than package regexp and does
// not allocate. Lines must not contain a line feed.
type wildcard struct {
	texts [][]byte // separated by ".*"; the first and the last may be empty
	group int      // index of the text before the group
}

// parseWildcard returns nil for any other kind of expression.
func parseWildcard(expr string) *wildcard {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || re.Op != syntax.OpConcat {
		return nil
	}
	w := &wildcard{texts: [][]byte{nil}, group: -1}
	for _, sub := range re.Sub {
		last := len(w.texts) - 1
		switch {
		case isAnyText(sub):
			w.texts = append(w.texts, nil)
		case sub.Op == syntax.OpCapture && w.group < 0 && isAnyText(sub.Sub[0]):
			w.texts, w.group = append(w.texts, nil), last
		case sub.Op == syntax.OpLiteral && sub.Flags&syntax.FoldCase == 0 && !slices.Contains(sub.Rune, utf8.RuneError):
			// The replacement character is excluded because it would also match invalid UTF-8.
			w.texts[last] = append(w.texts[last], string(sub.Rune)...)
		default:
			return nil
		}
	}
	if w.group < 0 {
		return nil
	}
	return w
}

// isAnyText reports whether an expression is ".*", also written as [^\n]*.
func isAnyText(re *syntax.Regexp) bool {
	if re.Op != syntax.OpStar || re.Flags&syntax.NonGreedy != 0 {
		return false
	}
	sub := re.Sub[0]
	return sub.Op == syntax.OpAnyCharNotNL || sub.Op == syntax.OpAnyChar || sub.Op == syntax.OpCharClass &&
		slices.Equal(sub.Rune, []rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune})
}

// find returns the text of the group.
func (w *wildcard) find(line []byte) (group []byte, ok bool) {
	// The match begins with the leftmost occurrence of the first text. Each ".*" is greedy, the first
	// one before all others: so, from the end backwards, each text is as far right as possible.
	begin := bytes.Index(line, w.texts[0])
	if begin < 0 {
		return nil, false
	}
	low := begin + len(w.texts[0])
	from, to, high := low, len(line), len(line)
	for i := len(w.texts) - 1; i > 0; i-- {
		at := bytes.LastIndex(line[low:high], w.texts[i])
		if at < 0 {
			return nil, false
		}
		high = low + at
		switch i {
		case w.group:
			from = high + len(w.texts[i])
		case w.group + 1:
			to = high
		}
	}
	return line[from:to], true
}
