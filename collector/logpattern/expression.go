package logpattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
)

// scope is the text that a pattern is searched in.
type scope uint8

const (
	inLine   scope = iota // each part of the latest line, split at newlines
	inLines               // the last parts joined
	inRecord              // the whole latest line
	inBuffer              // the last lines, padded with empty ones: NPD's buffer
)

// compiled is a pattern ready to run; immutable.
type compiled struct {
	Pattern
	re       *regexp.Regexp
	scope    scope
	group    int       // its bounds are the matched text; 0: the whole expression
	captures []capture // named groups
	size     int       // approximate number of instructions, including the size of classes
	literals []string  // one of them must occur; in lower case
	aged     bool      // a literal may occur in an earlier line than the latest
}

type capture struct {
	name  string
	group int
}

func compilePattern(p Pattern) (*compiled, error) {
	if p.Expr == "" {
		return nil, errors.New("expression: missing")
	}
	if len(p.Expr) > MaxExpr {
		return nil, fmt.Errorf("expression: longer than %d bytes", MaxExpr)
	}
	// Parse the expression alone first: then an error quotes the expression as written, and the
	// appended text can't hide a mistake.
	tree, err := syntax.Parse(p.Expr, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	p.Logs = slices.Clone(p.Logs)
	c := &compiled{Pattern: p, size: programSize(tree) + classSize(tree)}
	if c.size > maxProgram {
		return nil, fmt.Errorf("expression: compiles to %d instructions, more than %d: use fewer repetitions or smaller character classes", c.size, maxProgram)
	}
	if err := c.setLines(tree); err != nil {
		return nil, err
	}
	if err := c.setExpression(tree); err != nil {
		return nil, err
	}
	c.setLiterals(tree)
	return c, nil
}

// setLines sets how many lines the pattern spans.
func (c *compiled) setLines(tree *syntax.Regexp) error {
	if c.AnchorEnd {
		// A pattern that needs more lines than bufferSize never matches in NPD either; its
		// configurations load nevertheless, and lint reports it.
		if c.Lines == 0 {
			c.Lines = NPDLines
		}
		return nil
	}
	least, most := newlines(tree)
	switch {
	case c.Lines > 0 && least >= c.Lines:
		return fmt.Errorf("lines: the expression has %d newlines and can't match within %d", least, c.Lines)
	case c.Lines != 0:
	case most == unlimited:
		return errors.New("lines: the expression repeats a newline without limit: set how many lines it may span")
	case most >= MaxLines:
		return fmt.Errorf("lines: the expression has %d newlines, more than %d lines", most, MaxLines)
	default:
		c.Lines = most + 1
	}
	return nil
}

// setExpression decides where the pattern is searched and compiles it for that. A match without a
// newline lies in the latest line, because it ends there; only a start of text (\A, and ^ with
// that meaning) depends on what is before.
func (c *compiled) setExpression(tree *syntax.Regexp) error {
	before, behind := "", ""
	switch {
	case c.AnchorEnd:
		before, behind = `(?:`, `)\z`
		c.scope = inBuffer
		if c.Lines == 1 || withinLine(tree) {
			c.scope = inRecord
		}
	case c.Lines == 1:
		c.scope = inLine
	default:
		// Where the window starts and ends is irrelevant to a pattern, so ^ and $ match at lines.
		lines, err := syntax.Parse(c.Expr, syntax.Perl&^syntax.OneLine)
		if err != nil {
			return fmt.Errorf("expression: %w", err)
		}
		c.scope = inLine
		if !withinLine(lines) {
			before, behind = `(?m)(`, `)[^\n]*\z`
			c.scope, c.group = inLines, 1
		}
	}
	re, err := regexp.Compile(before + c.Expr + behind)
	if err != nil {
		// It is valid alone but not in a group: a quotation (\Q) ends with the expression.
		re, err = regexp.Compile(before + c.Expr + `\E` + behind)
	}
	if err != nil {
		return fmt.Errorf("expression: %w", err)
	}
	c.re = re
	for i, name := range re.SubexpNames() {
		if name != "" {
			c.captures = append(c.captures, capture{name, i})
		}
	}
	if len(c.captures) > maxCaptures {
		return fmt.Errorf("expression: more than %d named groups", maxCaptures)
	}
	return nil
}

// setLiterals sets the texts that must occur for the expression to match. If the part after the
// last newline has a literal, that one must be in the latest line.
func (c *compiled) setLiterals(tree *syntax.Regexp) {
	whole, last := requiredLiterals(tree)
	c.literals = whole
	if c.scope == inLine || c.scope == inRecord || len(whole) == 0 {
		return
	}
	if len(last) > 0 {
		c.literals = last
		return
	}
	c.aged = true
}

// find returns the bounds of the leftmost match in text and of its groups, nil if there is none.
// It omits groups that are not needed: they would cost about half as much again.
func (c *compiled) find(text []byte) []int {
	if c.group == 0 && len(c.captures) == 0 {
		return c.re.FindIndex(text)
	}
	return c.re.FindSubmatchIndex(text)
}
