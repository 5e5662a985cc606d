// Package ruledoc writes a Markdown page for each rule of a set, and an index.
// The output depends only on the rules: the same rules give exactly the same bytes.
// Texts of rules are escaped and not interpreted as Markdown.
package ruledoc

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// Page is one file.
type Page struct {
	Name string // file name: the rule's name and ".md", or README.md
	Text string
}

// Pages returns the index and one page per rule, in the order of the rules. docBase is put before a
// rule's doc to make a link; empty: no link.
func Pages(set *detector.RuleSet, docBase string) []Page {
	rules := set.Rules()
	pages := []Page{{"README.md", index(set, rules)}}
	for _, r := range rules {
		pages = append(pages, Page{r.Name + ".md", page(set, rules, r, docBase)})
	}
	return pages
}

func index(set *detector.RuleSet, rules []*detector.Rule) string {
	var b strings.Builder
	b.WriteString("# Rules\n")
	for _, c := range set.Conditions() {
		fmt.Fprintf(&b, "\n## %s\n\nWhile nothing is wrong: `%s`, %s\n\n", c.Type, c.HealthyReason, plain(c.HealthyMessage))
		list(&b, slices.DeleteFunc(slices.Clone(rules), func(r *detector.Rule) bool { return r.Condition != c.Type }))
	}
	b.WriteString("\n## Temporary problems\n\nEach occurrence is reported; no condition is set.\n\n")
	list(&b, slices.DeleteFunc(slices.Clone(rules), func(r *detector.Rule) bool { return !r.Temporary() }))
	return b.String()
}

func list(b *strings.Builder, rules []*detector.Rule) {
	if len(rules) == 0 {
		b.WriteString("No rules.\n")
		return
	}
	b.WriteString("| rule | reason | severity | events |\n|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(b, "| %s | `%s` | %s | %s |\n", link(r.Name), r.Reason, r.Severity, codes(r.Events))
	}
}

func link(rule string) string { return "[" + rule + "](" + rule + ".md)" }

func page(set *detector.RuleSet, rules []*detector.Rule, r *detector.Rule, docBase string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.Name)
	if r.Temporary() {
		b.WriteString("A temporary problem: each occurrence is reported, and no condition is set.\n\n")
	} else {
		fmt.Fprintf(&b, "A permanent problem: it makes the node condition `%s` True.\n\n", r.Condition)
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "- **%s**: %s\n", name, fmt.Sprintf(format, args...))
	}
	row("Reason", "`%s`", r.Reason)
	row("Severity", "%s", r.Severity)
	row("Events", "%s", codes(r.Events))
	if len(r.Logs) > 0 {
		row("Logs", "%s", codes(r.Logs))
	}
	if len(r.FallbackFor) > 0 {
		row("Active only while no source reports", "%s", codes(r.FallbackFor))
	}
	if r.Fault != r.Name {
		row("Fault", "`%s`, shared with %s", r.Fault, links(others(rules, r)))
	}
	row("Separate problem for each", "%s", cmp.Or(codes(r.GroupBy), "node"))
	row("Fires", "%s", fires(r))
	row("Clears", "%s", clears(r))
	if r.RateLimit.Count > 0 {
		row("Recorded one by one", "at most %d events within %s, then counted", r.RateLimit.Count, display.Exact(r.RateLimit.Within))
	}
	if len(r.DependsOn) > 0 {
		where := []string{links(r.DependsOn)}
		for _, own := range slices.Sorted(maps.Keys(r.Equal)) {
			where = append(where, fmt.Sprintf("of the same `%s` (their `%s`)", own, r.Equal[own]))
		}
		row("Hidden while these fire", "%s", strings.Join(where, ", "))
	}
	var hides []string
	for _, o := range rules {
		if slices.Contains(o.DependsOn, r.Name) {
			hides = append(hides, o.Name)
		}
	}
	if len(hides) > 0 {
		row("Hides", "%s", links(hides))
	}
	row("Tracks at most", "%d problems at a time", r.MaxGroups)
	for _, c := range set.Conditions() {
		if c.Type == r.Condition {
			row("Condition while nothing is wrong", "`%s`, %s", c.HealthyReason, plain(c.HealthyMessage))
		}
	}
	if r.Doc != "" {
		row("Read more", "%s", doc(r.Doc, docBase))
	}
	parts := []struct{ title, lang, text string }{
		{"Message", "", r.Message}, {"Lines that match", "", r.Pattern}, {"Lines that end it", "", r.ClearPattern},
		{"When", "cel", r.When}, {"Ends when", "cel", r.ClearWhen},
	}
	for _, s := range slices.Backward(problem.Severities()) {
		parts = append(parts, struct{ title, lang, text string }{"Severity " + string(s) + " when", "cel", r.SeverityWhen[s]})
	}
	for _, part := range parts {
		if part.text != "" {
			fmt.Fprintf(&b, "\n## %s\n\n%s", part.title, fenced(part.lang, part.text))
		}
	}
	return b.String()
}

func others(rules []*detector.Rule, r *detector.Rule) []string {
	var out []string
	for _, o := range rules {
		if o != r && o.Fault == r.Fault && o.Condition == r.Condition {
			out = append(out, o.Name)
		}
	}
	return out
}

func fires(r *detector.Rule) string {
	switch {
	case r.Threshold.Count > 0 && r.Threshold.Distinct != "":
		return fmt.Sprintf("with %d different `%s` within %s", r.Threshold.Count, r.Threshold.Distinct, display.Exact(r.Threshold.Within))
	case r.Threshold.Count > 0:
		return fmt.Sprintf("with %d matching events within %s", r.Threshold.Count, display.Exact(r.Threshold.Within))
	case r.AbsentFor > 0:
		return "when no event has matched for " + display.Exact(r.AbsentFor)
	case r.For > 0:
		return "when it has lasted for " + display.Exact(r.For)
	}
	return "at once"
}

func clears(r *detector.Rule) string {
	if r.Latched {
		return "never"
	}
	var ways []string
	if r.AbsentFor > 0 {
		ways = append(ways, "with the next event that matches")
	}
	if r.ClearPattern != "" {
		ways = append(ways, "with a line that ends it (below)")
	}
	if r.ClearWhen != "" {
		ways = append(ways, "with an event that ends it (below)")
	}
	if r.ClearAfter > 0 {
		ways = append(ways, "after "+display.Exact(r.ClearAfter)+" without a matching event")
	}
	return strings.Join(ways, ", or ")
}

func codes[T ~string](names []T) string { return joined(names, code) }

func links(rules []string) string { return cmp.Or(joined(rules, link), "no rule of this set") }

// joined returns the names as form returns each of them, separated by commas.
func joined[T ~string](names []T, form func(string) string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = form(string(n))
	}
	return strings.Join(out, ", ")
}

func doc(page, base string) string {
	if base == "" {
		return code(page)
	}
	// The link target is in <…>, so escape characters that would end it.
	target := strings.NewReplacer("<", "%3C", ">", "%3E", "\\", "%5C", " ", "%20").Replace(display.Safe(strings.TrimSuffix(base, "/")+"/"+page+".md", 1024))
	return "[" + plain(page) + "](<" + target + ">)"
}

// plain escapes Markdown and HTML syntax.
func plain(s string) string {
	s = display.Safe(strings.Join(strings.Fields(s), " "), detector.MaxMessage)
	return regexp.MustCompile("[\\\\`*_{}\\[\\]()<>#+!|~&]").ReplaceAllString(s, `\$0`)
}

// code returns a one-line text as a Markdown code span.
func code(s string) string {
	s = display.Safe(s, 512)
	ticks := strings.Repeat("`", longest(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return ticks + strings.ReplaceAll(s, "|", "\\|") + ticks
}

// fenced returns a text as a fenced code block, with unprintable characters escaped.
func fenced(lang, s string) string {
	fence := strings.Repeat("`", max(3, longest(s)+1))
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		tabs := l[:len(l)-len(strings.TrimLeft(l, "\t"))]
		lines[i] = tabs + display.Safe(l[len(tabs):], 1<<16)
	}
	return fence + lang + "\n" + strings.Join(lines, "\n") + "\n" + fence + "\n"
}

// longest returns the length of the longest run of back quotes.
func longest(s string) (n int) {
	for strings.Contains(s, strings.Repeat("`", n+1)) {
		n++
	}
	return n
}
