package lint

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/logpattern"
)

// judge is a rule's pattern, compiled, with what the corpus says of it.
type judge struct {
	set    *logpattern.Set
	free   *regexp.Regexp // the expression without the end anchor
	words  []string       // of the pattern, in its own case
	corpus *Corpus

	matched []match
	unbound []match // what only the end anchor keeps from matching
}

// match is a form that the pattern matches, and the word it asks for in a name's
// place, "" where any will do.
type match struct {
	form *Form
	word string
	text string // what is matched, and for unbound what follows it
}

// maxWords bounds the words of a pattern that are tried as names.
const maxWords = 16

func newJudge(r *Rule, c *Corpus) (*judge, error) {
	set, err := logpattern.Compile([]logpattern.Pattern{r.pattern()})
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
	for i := range c.Faults {
		for k := range c.Faults[i].Forms {
			j.try(&c.Faults[i].Forms[k])
		}
	}
	return j, nil
}

// try looks whether the pattern matches a form, with the usual names and with the
// pattern's own words in their place.
func (j *judge) try(f *Form) {
	names := []string{""}
	if strings.Contains(strings.Join(f.Lines, ""), "{") {
		names = append(names, j.words[:min(len(j.words), maxWords)]...)
	}
	for _, word := range names {
		lines := j.fill(f, word)
		if j.matches(lines) {
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

// fill puts names into a form's lines.
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

// matches runs the lines through the matcher that the agent has too.
func (j *judge) matches(lines []string) bool {
	m := j.set.NewMatcher("kmsg")
	var hits logpattern.Hits
	found := false
	for _, l := range lines {
		found = m.Match([]byte(l), &hits) || found
	}
	return found
}

// nearest returns the fault that the pattern is about, by its words and the rule's
// reason; nil where none is near.
func (j *judge) nearest(reason string) *Fault {
	var best *Fault
	most := 0.0
	for i := range j.corpus.Faults {
		f := &j.corpus.Faults[i]
		enough := 0.6
		if slices.Contains(f.Reasons, reason) {
			enough = 0.3
		}
		for k := range f.Forms {
			if s := j.score(&f.Forms[k]); s >= enough && s > most {
				best, most = f, s
			}
		}
	}
	return best
}

// score is the part of the pattern's words that stand in the form, weighed by how
// few forms have them.
func (j *judge) score(f *Form) float64 {
	has, all, n := 0.0, 0.0, 0
	text := strings.ToLower(strings.Join(f.Lines, " "))
	for _, w := range j.words {
		// A word that no form has is misspelt, or tells that the pattern is about
		// something else.
		weight := 0.4
		if n := j.common(w); n > 0 {
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

// common is how many forms have the word.
func (j *judge) common(w string) int {
	w = strings.ToLower(w)
	n := 0
	for _, f := range j.corpus.Faults {
		for _, form := range f.Forms {
			if strings.Contains(strings.ToLower(strings.Join(form.Lines, " ")), w) {
				n++
			}
		}
	}
	return n
}

// words returns the words of an expression's fixed texts, in order, each once.
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
