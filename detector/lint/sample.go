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
	tree   *syntax.Regexp
	words  []string // of the pattern, in their original case
	corpus *index

	matched []match
	unbound []match // forms that match without the end anchor only
}

// match is a form that the pattern matches, and the word that the pattern requires in place of
// a name; "" if any name matches.
type match struct {
	form *indexedForm
	word string
	text string // for unbound: the text after the match
}

// maxWords bounds how many words of a pattern are tried as names.
const maxWords = 16

// index is a corpus prepared for many patterns.
type index struct {
	*Corpus
	forms []*indexedForm
	words map[string]int // cache: how many forms contain a word
}

type indexedForm struct {
	*Form
	fault *Fault
	text  string // of all lines, in lower case
	names bool   // it has a placeholder for a name
}

func newIndex(c *Corpus) *index {
	x := &index{Corpus: c, words: make(map[string]int)}
	for i := range c.Faults {
		fault := &c.Faults[i]
		for k := range fault.Forms {
			f := &fault.Forms[k]
			text := strings.ToLower(strings.Join(f.Lines, "\n"))
			x.forms = append(x.forms, &indexedForm{f, fault, text, strings.Contains(text, "{")})
		}
	}
	return x
}

// common returns how many forms contain the word.
func (x *index) common(w string) int {
	w = strings.ToLower(w)
	n, ok := x.words[w]
	if !ok {
		for _, f := range x.forms {
			if strings.Contains(f.text, w) {
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
	tree, err := syntax.Parse(r.Expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	free, err := regexp.Compile(r.Expr)
	if err != nil {
		return nil, err
	}
	j := &judge{set: set, free: free, tree: tree, words: words(tree), corpus: c}
	if r.Kernel {
		for _, f := range c.forms {
			j.try(f)
		}
	}
	return j, nil
}

// try checks whether the pattern matches a form, with the default names or with the
// pattern's own words as names. It does not try words of a pattern that has no word in common
// with the form, unless the pattern is a single name.
func (j *judge) try(f *indexedForm) {
	names := []string{""}
	if f.names && (len(j.words) < 2 || slices.ContainsFunc(j.words, func(w string) bool {
		return strings.Contains(f.text, strings.ToLower(w))
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
func (j *judge) fill(f *indexedForm, word string) []string {
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
	for _, f := range j.corpus.forms {
		enough := 0.6
		if slices.Contains(f.fault.Reasons, reason) {
			enough = 0.3
		}
		if s := j.score(f.text); s >= enough && s > most {
			best, most = f.fault.Name, s
		}
	}
	return best
}

// score returns the share of the pattern's words that the text contains. Rare words
// have more weight.
func (j *judge) score(text string) float64 {
	has, all, n := 0.0, 0.0, 0
	for _, w := range j.words {
		// If no form contains the word, it is misspelt or the pattern is unrelated.
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
	word := regexp.MustCompile(`[\w.-]+`)
	for _, text := range texts {
		for _, w := range word.FindAllString(text, -1) {
			if w = strings.Trim(w, ".-"); len(w) >= 3 && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}
