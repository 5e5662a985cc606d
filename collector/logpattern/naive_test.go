package logpattern_test

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kernosis/kernosis/collector/logpattern"
)

// naive is what a Matcher must agree with: every expression run on every window,
// with no prefilter, no shortcut and all lines kept.
type naive struct {
	patterns []logpattern.Pattern
	exprs    []*regexp.Regexp
	records  []string
	parts    []string // of all records
	record   []int    // to which a part belongs
}

// newNaive takes patterns that compile.
func newNaive(set *logpattern.Set) *naive {
	n := &naive{}
	for i := range set.Len() {
		p := set.Pattern(i)
		expr := p.Expr
		switch {
		case p.AnchorEnd:
			expr = `(?:` + quoted(expr) + `)\z`
		case p.Lines > 1:
			expr = `(?m)(?P<whole>` + quoted(expr) + `)[^\n]*\z`
		}
		n.patterns = append(n.patterns, p)
		n.exprs = append(n.exprs, regexp.MustCompile(expr))
	}
	return n
}

// quoted ends a quotation that would end with the expression.
func quoted(expr string) string {
	if _, err := regexp.Compile(`(` + expr + `)`); err != nil {
		return expr + `\E`
	}
	return expr
}

func (n *naive) match(record string) []string {
	var hits []string
	n.records = append(n.records, record)
	parts := strings.Split(record, "\n")
	before := len(n.parts)
	n.parts = append(n.parts, parts...)
	for range parts {
		n.record = append(n.record, len(n.records))
	}
	for i, p := range n.patterns {
		if p.AnchorEnd {
			if hit := n.anchored(p, n.exprs[i]); hit != "" {
				hits = append(hits, hit)
			}
			continue
		}
		for j := before; j < len(n.parts); j++ {
			from := max(0, j+1-p.Lines)
			text := strings.Join(n.parts[from:j+1], "\n")
			at := n.exprs[i].FindStringSubmatchIndex(text)
			if at == nil {
				continue
			}
			start := at[0]
			if whole := n.exprs[i].SubexpIndex("whole"); whole > 0 {
				start = at[2*whole]
			}
			// A newline belongs to the line that follows it.
			from += strings.Count(text[:min(start+1, len(text))], "\n")
			hits = append(hits, hit(p, n.exprs[i], text, at)+
				reported(len(n.records)-n.record[from]+1, n.parts[from:j+1]))
			break
		}
	}
	return hits
}

func (n *naive) anchored(p logpattern.Pattern, re *regexp.Regexp) string {
	buffer := make([]string, p.Lines)
	for i := range buffer {
		if j := len(n.records) - 1 - i; j >= 0 {
			buffer[p.Lines-1-i] = n.records[j]
		}
	}
	text := strings.Join(buffer, "\n")
	at := re.FindStringSubmatchIndex(text)
	if at == nil {
		return ""
	}
	// The number of lines that NPD reports: counted backwards from the last one, until the lines
	// and the newlines before them reach the match.
	lines, size := 0, 0
	for lines < min(p.Lines, len(n.records)) {
		size += len(buffer[p.Lines-1-lines]) + 1
		lines++
		if size > len(text)-at[0]-1 {
			break
		}
	}
	return hit(p, re, text, at) + reported(lines, buffer[p.Lines-lines:])
}

func reported(lines int, context []string) string {
	return fmt.Sprintf(" lines=%d context=%q", lines, strings.Join(context, "\n"))
}

func hit(p logpattern.Pattern, re *regexp.Regexp, text string, at []int) string {
	whole := 0
	var captures strings.Builder
	for g, name := range re.SubexpNames() {
		switch {
		case name == "whole":
			whole = g
		case name != "" && at[2*g] >= 0:
			fmt.Fprintf(&captures, " %s=%q", name, text[at[2*g]:at[2*g+1]])
		}
	}
	return fmt.Sprintf("%s %q%s", p.Name, text[at[2*whole]:at[2*whole+1]], &captures)
}

// describe converts a Matcher's hits to the form of naive.
func describe(set *logpattern.Set, hits *logpattern.Hits) []string {
	var all []string
	for _, h := range hits.Hits {
		var s strings.Builder
		fmt.Fprintf(&s, "%s %q", set.Pattern(h.Pattern).Name, h.Text)
		for _, c := range h.Captures {
			fmt.Fprintf(&s, " %s=%q", c.Name, c.Text)
		}
		fmt.Fprintf(&s, " lines=%d context=%q", h.Lines, h.Context)
		all = append(all, s.String())
	}
	return all
}
