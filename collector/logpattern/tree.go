package logpattern

import (
	"regexp/syntax"
	"slices"
)

// unlimited is where counting stops, and the number of newlines if the expression doesn't bound it.
const unlimited = 1 << 30

// programSize estimates how many instructions package regexp compiles an expression to, without
// compiling it: repetitions make a short expression large, because each one is written out.
func programSize(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpRepeat:
		// x{2,} is xx+, x{2,4} is xx(x(x)?)?.
		if re.Max < 0 {
			size = max(re.Min, 1)*size + 1
		} else {
			size = re.Max*size + re.Max - re.Min
		}
	case syntax.OpCapture:
		size += 2
	case syntax.OpAlternate:
		size += len(re.Sub) - 1
	case syntax.OpConcat:
	default:
		size++
	}
	return min(size, unlimited)
}

// classSize returns the size of the expression's classes, as a number of instructions with the same
// memory: Unicode categories have hundreds of ranges (\pL: 5 KiB). Repetitions share a class.
func classSize(re *syntax.Regexp) int {
	size := 0
	if re.Op == syntax.OpCharClass {
		size = len(re.Rune) / 10 // of 4 bytes; an instruction has 40
	}
	for _, sub := range re.Sub {
		size += classSize(sub)
	}
	return size
}

// newlines returns the minimum and maximum number of newlines in a match. The maximum counts only
// explicit ones: `\s` and `[^x]` are meant to match a blank or any character, not a further line.
func newlines(re *syntax.Regexp) (least, most int) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if r == '\n' {
				least++
			}
		}
		return least, least
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range re.Sub {
			l, m := newlines(sub)
			least, most = min(least+l, unlimited), min(most+m, unlimited)
		}
	case syntax.OpAlternate:
		least = unlimited
		for _, sub := range re.Sub {
			l, m := newlines(sub)
			least, most = min(least, l), max(most, m)
		}
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		atLeast, atMost := repetitions(re)
		l, m := newlines(re.Sub[0])
		least, most = min(l*atLeast, unlimited), min(m*atMost, unlimited)
	}
	return least, most
}

func repetitions(re *syntax.Regexp) (atLeast, atMost int) {
	switch re.Op {
	case syntax.OpStar:
		return 0, unlimited
	case syntax.OpPlus:
		return 1, unlimited
	case syntax.OpQuest:
		return 0, 1
	}
	if re.Max < 0 {
		return re.Min, unlimited
	}
	return re.Min, re.Max
}

// withinLine reports whether every match lies in one line and depends on nothing before it.
func withinLine(re *syntax.Regexp) bool {
	if re.Op == syntax.OpBeginText || ownNewline(re) {
		return false
	}
	return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !withinLine(sub) })
}

// matchesNewline reports whether a match may contain a newline.
func matchesNewline(re *syntax.Regexp) bool {
	return ownNewline(re) || slices.ContainsFunc(re.Sub, matchesNewline)
}

// ownNewline reports whether the node itself matches a newline.
func ownNewline(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpAnyChar:
		return true
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, '\n')
	case syntax.OpCharClass: // pairs of lowest and highest
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if re.Rune[i] <= '\n' && '\n' <= re.Rune[i+1] {
				return true
			}
		}
	}
	return false
}
