package lint

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
)

// judge is a rule's compiled pattern with the corpus lines that it matches.
type judge struct {
	set    *logpattern.Set
	free   *regexp.Regexp // the expression without the end anchor
	words  []string       // of the pattern, in their original case
	corpus *index

	matched []match
	unbound []match // forms that match without the end anchor only
}

// match is a form that the pattern matches, with the word that the pattern needs in
// place of a name; "" if any name matches.
type match struct {
	form *Form
	word string
	text string // for unbound: the text after the match
}

// maxWords bounds how many words of a pattern are tried as names.
const maxWords = 16

// index is a corpus prepared for many patterns.
type index struct {
	*Corpus
	forms []*Form
	texts []string       // of the forms, in lower case
	names []bool         // whether the form has a placeholder for a name
	words map[string]int // cache: how many forms contain a word
}

func newIndex(c *Corpus) *index {
	x := &index{Corpus: c, words: make(map[string]int)}
	for i := range c.Faults {
		for k := range c.Faults[i].Forms {
			f := &c.Faults[i].Forms[k]
			text := strings.ToLower(strings.Join(f.Lines, "\n"))
			x.forms = append(x.forms, f)
			x.texts = append(x.texts, text)
			x.names = append(x.names, strings.Contains(text, "{"))
		}
	}
	return x
}

// common returns how many forms contain the word.
func (x *index) common(w string) int {
	w = strings.ToLower(w)
	n, ok := x.words[w]
	if !ok {
		for _, text := range x.texts {
			if strings.Contains(text, w) {
				n++
			}
		}
		x.words[w] = n
	}
	return n
}

func newJudge(r *Rule, c *index) (*judge, error) {
	set, err := logpattern.Compile([]logpattern.Pattern{{Name: r.Reason, Expr: r.Expr, Lines: r.Lines, AnchorEnd: r.AnchorEnd}})
	if err != nil {
		return nil, err
	}
	free, err := regexp.Compile(r.Expr)
	if err != nil {
		return nil, err
	}
	j := &judge{set: set, free: free, corpus: c}
	if tree, err := syntax.Parse(r.Expr, syntax.Perl); err == nil {
		j.words = words(tree)
	}
	if r.Kernel {
		for i := range c.forms {
			j.try(i)
		}
	}
	return j, nil
}

// try checks whether the pattern matches form i, with the default names or with the
// pattern's own words as names. The words of a pattern that shares none with the form
// are not tried, unless the pattern is a single name.
func (j *judge) try(i int) {
	f, names := j.corpus.forms[i], []string{""}
	if j.corpus.names[i] && (len(j.words) < 2 || slices.ContainsFunc(j.words, func(w string) bool {
		return strings.Contains(j.corpus.texts[i], strings.ToLower(w))
	})) {
		names = append(names, j.words[:min(len(j.words), maxWords)]...)
	}
	for _, word := range names {
		if j.matches(j.fill(f, word)) {
			j.matched = append(j.matched, match{form: f, word: word})
			return
		}
	}
	for _, word := range names {
		text := strings.Join(j.fill(f, word), "\n")
		if at := j.free.FindStringIndex(text); at != nil && at[1] < len(text) && at[1] > at[0] {
			j.unbound = append(j.unbound, match{form: f, word: word, text: text[at[1]:]})
			return
		}
	}
}

// fill returns a form's lines with the placeholders replaced.
func (j *judge) fill(f *Form, word string) []string {
	out := make([]string, len(f.Lines))
	for i, line := range f.Lines {
		for name, value := range j.corpus.Values {
			if word != "" {
				value = word
			}
			line = strings.ReplaceAll(line, "{"+name+"}", value)
		}
		out[i] = line
	}
	return out
}

// matches runs the lines through the same matcher that the agent uses.
func (j *judge) matches(lines []string) bool {
	m := j.set.NewMatcher("kmsg", event.KernelLogs)
	var hits logpattern.Hits
	found := false
	for _, l := range lines {
		found = m.Match([]byte(l), &hits) || found
	}
	return found
}

// nearest returns the name of the fault that fits the pattern best, by its words and
// the rule's reason; "" if none is similar enough.
func (j *judge) nearest(reason string) string {
	best, most := "", 0.0
	for i, form := range j.corpus.forms {
		enough := 0.6
		if slices.Contains(j.corpus.reasons(form.Fault), reason) {
			enough = 0.3
		}
		if s := j.score(j.corpus.texts[i]); s >= enough && s > most {
			best, most = form.Fault, s
		}
	}
	return best
}

// reasons returns the usual reasons of rules for a fault.
func (c *Corpus) reasons(fault string) []string {
	for i := range c.Faults {
		if c.Faults[i].Name == fault {
			return c.Faults[i].Reasons
		}
	}
	return nil
}

// score returns the share of the pattern's words that the text contains. Rare words
// have more weight.
func (j *judge) score(text string) float64 {
	has, all, n := 0.0, 0.0, 0
	for _, w := range j.words {
		// A word that no form contains is misspelt, or shows that the pattern is
		// unrelated.
		weight := 0.4
		if n := j.corpus.common(w); n > 0 {
			weight = 1 / float64(1+n)
		}
		all += weight
		if strings.Contains(text, strings.ToLower(w)) {
			has += weight
			n++
		}
	}
	if all == 0 || n < 2 && len(j.words) > 1 {
		return 0
	}
	return has / all
}

// words returns the distinct words of an expression's fixed texts, in order.
func words(tree *syntax.Regexp) []string {
	var texts []string
	var walk func(*syntax.Regexp)
	walk = func(t *syntax.Regexp) {
		if t.Op == syntax.OpLiteral {
			texts = append(texts, string(t.Rune))
		}
		for _, sub := range t.Sub {
			walk(sub)
		}
	}
	walk(tree)
	var out []string
	for _, text := range texts {
		for _, w := range strings.FieldsFunc(text, func(c rune) bool {
			return !(c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
		}) {
			if w = strings.Trim(w, ".-"); len(w) >= 3 && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}
