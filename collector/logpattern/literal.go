package logpattern

import (
	"math/bits"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

const (
	// maxAlternatives bounds a pattern's literals; beyond, a shorter common literal is used, or none.
	maxAlternatives = 32
	// maxLiteral is how many bytes of a literal are kept, its last ones: the end of a message is
	// more specific than its start ("Failed to …"). With 32 bytes the shipped rules' table would be
	// twice as large and find as many lines; with 12 ten times as many lines of a boot log match.
	maxLiteral = 16
	// minLiteral is the minimum length of a literal: a single byte is in nearly every line.
	minLiteral = 2
	// maxClass is the largest class, in runes, that is expanded.
	maxClass = 4
)

// choice is a set of texts in lower case, one of which must occur. The empty one requires nothing.
type choice struct {
	texts []string
	// folded: a k or s in it also matches U+212A (Kelvin sign) or U+017F (long s).
	folded bool
}

// worth ranks choices. A choice ranks higher if its shortest text is longer and if it has fewer
// texts. One short and rare text, such as "[#" of an oops, is better than a list of twenty words.
func (c choice) worth() int {
	if len(c.texts) == 0 || len(c.texts) > maxAlternatives {
		return 0
	}
	shortest := maxLiteral
	for _, t := range c.texts {
		shortest = min(shortest, len(t))
	}
	if shortest < minLiteral {
		return 0
	}
	return shortest*4 - 2*bits.Len(uint(len(c.texts)-1)) //nolint:gosec // not negative
}

// list returns the texts to look for.
func (c choice) list() []string {
	if c.worth() == 0 {
		return nil
	}
	all := slices.Clone(c.texts)
	if c.folded {
		all = append(all, "\u212a", "\u017f")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (c choice) union(o choice) choice {
	u := choice{texts: slices.Concat(c.texts, o.texts), folded: c.folded || o.folded}
	slices.Sort(u.texts)
	u.texts = slices.Compact(u.texts)
	return u
}

// requiredLiterals returns two sets of texts, either of which may be empty: each match of the
// expression contains a text of the first set, and contains a text of the second set after its last
// newline.
func requiredLiterals(re *syntax.Regexp) (whole, last []string) {
	s := newSearch()
	s.walk(re)
	s.flush()
	return s.best.list(), s.tail.list()
}

// search walks an expression from left to right.
type search struct {
	run   choice // the texts directly before the current place
	best  choice // the best choice so far
	tail  choice // the best choice since the last place that may match a newline
	exact bool   // run is all that was walked: nothing else can match
	lines bool   // there was a place that may match a newline
}

func newSearch() *search { return &search{run: nothing(), exact: true} }

func nothing() choice { return choice{texts: []string{""}} }

func (s *search) walk(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			s.rune(r, re.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		s.class(re)
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			s.walk(sub)
		}
	case syntax.OpPlus, syntax.OpRepeat:
		least, most := repetitions(re)
		n := min(least, maxLiteral) // more repetitions don't change its end
		for range n {
			s.walk(re.Sub[0])
		}
		if n != most {
			s.gap(re)
		}
	case syntax.OpQuest:
		s.alternate(re.Sub[0], &syntax.Regexp{Op: syntax.OpEmptyMatch})
	case syntax.OpAlternate:
		s.alternate(re.Sub...)
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText,
		syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		// Zero width: the texts on either side are adjacent.
	default: // matches anything, nothing at all, or any number of times
		s.gap(re)
	}
}

// rune adds one rune of a literal.
func (s *search) rune(r rune, fold bool) {
	switch {
	case r == '\n':
		s.newline()
	case r == utf8.RuneError || !utf8.ValidRune(r):
		// Package regexp treats each byte that is not UTF-8 as U+FFFD.
		s.breakRun()
	case !fold || unicode.SimpleFold(r) == r:
		s.cross(choice{texts: []string{lower(r)}})
	case r >= utf8.RuneSelf:
		s.breakRun()
	default:
		c := choice{texts: []string{lower(r)}}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			c.folded = c.folded || f >= utf8.RuneSelf // among ASCII letters, only k and s
		}
		s.cross(c)
	}
}

// lower returns the bytes of a rune, with ASCII letters in lower case.
func lower(r rune) string {
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return string(r)
}

// class adds a class: rune by rune if it has few.
func (s *search) class(re *syntax.Regexp) {
	var c choice
	n := 0
	for i := 0; i+1 < len(re.Rune); i += 2 {
		lo, hi := re.Rune[i], re.Rune[i+1]
		if n += int(hi-lo) + 1; n > maxClass {
			s.gap(re)
			return
		}
		for r := lo; r <= hi; r++ {
			if r == '\n' || r == utf8.RuneError || !utf8.ValidRune(r) {
				s.gap(re)
				return
			}
			c = c.union(choice{texts: []string{lower(r)}})
		}
	}
	if n == 0 { // matches nothing
		s.gap(re)
		return
	}
	s.cross(c)
}

// alternate adds an alternation of expressions.
func (s *search) alternate(subs ...*syntax.Regexp) {
	var runs, best, tail choice
	exact, haveBest, haveTail, lines := true, true, true, false
	for _, sub := range subs {
		b := newSearch()
		b.walk(sub)
		if exact = exact && b.exact; exact {
			runs = runs.union(b.run)
		}
		b.flush()
		lines = lines || b.lines
		haveBest = haveBest && b.best.worth() > 0
		haveTail = haveTail && b.tail.worth() > 0
		best, tail = best.union(b.best), tail.union(b.tail)
	}
	if exact && len(runs.texts) <= maxAlternatives {
		s.cross(runs)
		return
	}
	s.breakRun()
	if haveBest {
		s.best = better(s.best, best)
	}
	if lines {
		s.lines = true
		s.tail = choice{}
	}
	if haveTail {
		s.tail = better(s.tail, tail)
	}
}

// cross appends each of the texts to those of the run.
func (s *search) cross(c choice) {
	if len(s.run.texts)*len(c.texts) > maxAlternatives {
		s.breakRun()
	}
	next := choice{folded: s.run.folded || c.folded}
	for _, a := range s.run.texts {
		for _, b := range c.texts {
			t := a + b
			if len(t) > maxLiteral {
				t = t[len(t)-maxLiteral:]
			}
			next.texts = append(next.texts, t)
		}
	}
	slices.Sort(next.texts)
	next.texts = slices.Compact(next.texts)
	s.run = next
}

// gap adds a place that re may match with anything that is not expressed by texts.
func (s *search) gap(re *syntax.Regexp) {
	if matchesNewline(re) {
		s.newline()
		return
	}
	s.breakRun()
}

// newline adds a place that may match a newline.
func (s *search) newline() {
	s.breakRun()
	s.tail = choice{}
	s.lines = true
}

// breakRun ends the run, because the next text is not adjacent to it.
func (s *search) breakRun() {
	s.flush()
	s.run = nothing()
	s.exact = false
}

func (s *search) flush() {
	s.best = better(s.best, s.run)
	s.tail = better(s.tail, s.run)
}

func better(a, b choice) choice {
	if b.worth() > a.worth() {
		return b
	}
	return a
}
