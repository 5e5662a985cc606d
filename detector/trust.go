package detector

import (
	"maps"
	"slices"
	"strings"
)

// trust returns why the absence of problems proves nothing, or "".
//
// Of the stems without names one that is up is enough. A log or check that is
// down leaves open what it alone would report: the faults of the rules that look at
// it, unless another source sees the same fault.
func (e *Engine) trust(c *conditionState) (reason, text string) {
	if len(c.rules) == 0 {
		return ReasonNoRule, "no rule sets this condition"
	}
	var w witness
	w.plain(e, c)
	for _, s := range c.series {
		w.named(e, s)
	}
	w.waiting = append(w.waiting, e.unreportedAbsences(c)...)
	switch lossy := e.lossy(c); {
	case len(w.down) > 0:
		return ReasonSourceUnavailable, strings.Join(w.down, "; ")
	case len(w.waiting) > 0:
		return ReasonSourceNotStarted, "waiting for " + strings.Join(w.waiting, ", ")
	case len(lossy) > 0:
		return ReasonSourceLossy, "records were lost: " + strings.Join(lossy, ", ")
	}
	return "", ""
}

// standsBack reports whether the rule is a fallback for a source that sees.
func (e *Engine) standsBack(r *Rule) bool {
	return slices.ContainsFunc(r.FallbackFor, func(stem string) bool {
		st := e.stems[stem]
		return st != nil && st.up
	})
}

// witness collects what is not seen.
type witness struct {
	down    []string // sources, with why
	waiting []string // those that have not said anything yet
}

// plain looks at the sources without names.
func (w *witness) plain(e *Engine, c *conditionState) {
	var down []string
	for _, name := range c.stems {
		switch st := e.stems[name]; {
		case st == nil:
		case st.up:
			return
		case st.known:
			down = append(down, name+": "+st.reason)
		}
	}
	for _, s := range c.series {
		if slices.ContainsFunc(s.rules, func(r *Rule) bool { return len(r.stems) > 0 }) && slices.ContainsFunc(s.rules, e.sees) {
			return // a log reports the same
		}
	}
	if w.down = down; len(down) == 0 {
		w.waiting = slices.Clone(c.stems)
	}
}

// named looks at the logs and checks that report one fault. While a source of it has
// not said anything yet, it may be the one that sees.
func (w *witness) named(e *Engine, s *series) {
	if slices.ContainsFunc(s.rules, e.sees) {
		return
	}
	var down, waiting []string
	for _, r := range s.rules {
		for i := range r.named {
			n := &r.named[i]
			switch s, why := e.sightOf(n); s {
			case blind:
				down = appendNew(down, why...)
			case unreported:
				waiting = appendNew(waiting, n.String())
			case seeing:
			}
		}
	}
	if len(down) > 0 {
		for _, r := range s.rules {
			for _, stem := range r.stems {
				if st := e.stems[stem]; st == nil || !st.known {
					waiting = appendNew(waiting, stem)
				}
			}
		}
	}
	if len(waiting) > 0 {
		down = nil
	}
	w.down, w.waiting = appendNew(w.down, down...), appendNew(w.waiting, waiting...)
}

func appendNew(to []string, texts ...string) []string {
	for _, t := range texts {
		if !slices.Contains(to, t) {
			to = append(to, t)
		}
	}
	return to
}

// lossy returns the sources that have lost something of late.
func (e *Engine) lossy(c *conditionState) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(e.stems)) {
		st := e.stems[name]
		if st.lossyUntil != 0 && slices.ContainsFunc(c.rules, func(r *Rule) bool { return r.looksAt(name, st) }) {
			out = append(out, name+" ("+st.lossReason+")")
		}
	}
	return out
}
