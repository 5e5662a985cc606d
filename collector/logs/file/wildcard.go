package file

import (
	"bytes"
	"regexp/syntax"
	"unicode/utf8"
)

// wildcard evaluates an expression that consists only of texts and ".*", as the usual ones for
// messages do: `kernel: \[.*\] (.*)`, `msg="([^\n]*)"`. It is much faster than package regexp and
// allocates nothing. Lines must not contain a line feed.
type wildcard struct {
	texts      [][]byte // separated by ".*"
	first      bool     // ".*" comes before the first text
	last       bool     // ".*" comes after the last text
	begin, end bool     // the expression begins with ^, ends with $
	from, to   edge     // of the group, or of the match
}

// edge is a place in a match: before or behind a text.
type edge struct {
	text   int // index in texts; out of bounds means the start or end of the match
	behind bool
}

// parseWildcard returns nil for any other kind of expression.
func parseWildcard(expr string) *wildcard {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	p := &wildcardParser{group: re.MaxCap()}
	if !p.add(re) || len(p.w.texts) == 0 || len(p.w.texts) > maxTexts {
		return nil
	}
	w := &p.w
	w.last = p.star
	if p.group == 0 {
		w.from, w.to = edge{text: -1}, edge{text: len(w.texts)}
	}
	return w
}

// wildcardParser parses an expression from left to right.
type wildcardParser struct {
	w     wildcard
	group int  // the group whose text is returned
	star  bool // the last element was ".*"
	ended bool // $ was seen
}

func (p *wildcardParser) add(re *syntax.Regexp) bool {
	if p.ended {
		return false
	}
	switch re.Op {
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !p.add(sub) {
				return false
			}
		}
		return true
	case syntax.OpCapture:
		if re.Cap != p.group {
			return p.add(re.Sub[0])
		}
		p.w.from = p.here()
		ok := p.add(re.Sub[0])
		p.w.to = p.here()
		return ok
	case syntax.OpBeginText:
		p.w.begin = true
		return len(p.w.texts) == 0 && !p.star
	case syntax.OpEndText:
		p.w.end, p.ended = true, true
		return true
	case syntax.OpStar:
		return p.addStar(re)
	case syntax.OpLiteral:
		return p.addText(re)
	default:
		return false
	}
}

func (p *wildcardParser) addStar(re *syntax.Regexp) bool {
	sub := re.Sub[0]
	anyChar := sub.Op == syntax.OpAnyCharNotNL || sub.Op == syntax.OpAnyChar ||
		sub.Op == syntax.OpCharClass && len(sub.Rune) == 4 && sub.Rune[0] == 0 && sub.Rune[1] == '\n'-1 &&
			sub.Rune[2] == '\n'+1 && sub.Rune[3] == utf8.MaxRune
	if re.Flags&syntax.NonGreedy != 0 || !anyChar {
		return false
	}
	if len(p.w.texts) == 0 {
		p.w.first = true
	}
	p.star = true
	return true
}

func (p *wildcardParser) addText(re *syntax.Regexp) bool {
	if re.Flags&syntax.FoldCase != 0 {
		return false
	}
	text := []byte(string(re.Rune))
	if !utf8.Valid(text) || bytes.ContainsRune(text, utf8.RuneError) {
		return false // it would also match invalid UTF-8
	}
	if n := len(p.w.texts); n > 0 && !p.star {
		// A group begins or ends within a text.
		if p.w.from == (edge{text: n - 1, behind: true}) || p.w.to == (edge{text: n - 1, behind: true}) {
			return false
		}
		p.w.texts[n-1] = append(p.w.texts[n-1], text...)
		return true
	}
	p.w.texts = append(p.w.texts, text)
	p.star = false
	return true
}

// here returns the edge at the parser's place.
func (p *wildcardParser) here() edge {
	if p.star {
		return edge{text: len(p.w.texts)} // before the next text, or the end
	}
	return edge{text: len(p.w.texts) - 1, behind: true}
}

// maxTexts bounds the size of find's array.
const maxTexts = 8

// find returns what the expression finds in the line.
func (w *wildcard) find(line []byte) ([]byte, bool) {
	var at [maxTexts]int
	n := len(w.texts)
	low, high, rest := 0, len(line), 0
	begin := 0
	if !w.first {
		// The match begins with the leftmost occurrence of the first text.
		at[0] = bytes.Index(line, w.texts[0])
		if n == 1 && !w.last && w.end && bytes.HasSuffix(line, w.texts[0]) {
			at[0] = len(line) - len(w.texts[0])
		}
		if at[0] < 0 || w.begin && at[0] > 0 {
			return nil, false
		}
		begin, low, rest = at[0], at[0]+len(w.texts[0]), 1
	}
	end := high
	// Each ".*" is greedy, the first one before all others: so, from the end backwards, each text
	// is as far right as possible.
	for i := n - 1; i >= rest; i-- {
		text := w.texts[i]
		if i == n-1 && !w.last && w.end {
			at[i] = len(line) - len(text)
			if at[i] < low || !bytes.HasSuffix(line, text) {
				return nil, false
			}
		} else {
			j := bytes.LastIndex(line[low:high], text)
			if j < 0 {
				return nil, false
			}
			at[i] = low + j
		}
		high = at[i]
		if i == n-1 && !w.last {
			end = at[i] + len(text)
		}
	}
	if rest == n && !w.last {
		end = low
		if w.end && end != len(line) {
			return nil, false
		}
	}
	place := func(e edge) int {
		switch {
		case e.text < 0:
			return begin
		case e.text >= n:
			return end
		case e.behind:
			return at[e.text] + len(w.texts[e.text])
		default:
			return at[e.text]
		}
	}
	return line[place(w.from):place(w.to)], true
}
