package detector

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/detector/problem"
)

// trust returns why the absence of problems can't be trusted, or "".
//
// Of the stems without names, one must be up. While a log or check is down, faults of the rules that
// read it may be missed, unless another source detects the same fault.
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
		return problem.ReasonSourceNotStarted, "waiting for " + strings.Join(w.waiting, ", ")
	case len(lossy) > 0:
		return ReasonSourceLossy, "records were lost: " + strings.Join(lossy, ", ")
	}
	return "", ""
}

// standsBack reports whether the rule is a fallback for a source that is up.
func (e *Engine) standsBack(r *Rule) bool {
	return slices.ContainsFunc(r.FallbackFor, func(stem string) bool {
		st := e.stems[stem]
		return st != nil && st.Up
	})
}

// witness collects the sources that can't report.
type witness struct {
	down    []string // sources that are down, with the reason
	waiting []string // sources that have not reported their state yet
}

// plain checks the sources without names.
func (w *witness) plain(e *Engine, c *conditionState) {
	var down []string
	for _, name := range c.stems {
		switch st := e.stems[name]; {
		case st == nil:
		case st.Up:
			return
		case st.Known:
			down = append(down, name+": "+st.Reason)
		}
	}
	for _, s := range c.series {
		if slices.ContainsFunc(s.rules, func(r *Rule) bool { return len(r.stems) > 0 }) && slices.ContainsFunc(s.rules, e.sees) {
			return // a log reports the same fault
		}
	}
	if w.down = down; len(down) == 0 {
		w.waiting = slices.Clone(c.stems)
	}
}

// named checks the logs and checks that report one fault. While one of its sources has
// not reported its state yet, that source may still detect the fault.
func (w *witness) named(e *Engine, s *series) {
	if slices.ContainsFunc(s.rules, e.sees) {
		return
	}
	var down, waiting []string
	for _, r := range s.rules {
		if e.standsBack(r) {
			continue // it is inactive
		}
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
				if st := e.stems[stem]; st == nil || !st.Known {
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

// lossy returns the sources that have recently lost records, except those whose loss
// another source of the same fault compensates.
func (e *Engine) lossy(c *conditionState) (out []string) {
	if e.lossyEnd == 0 {
		return nil
	}
	for _, s := range c.series {
		var lost []string
		whole := false
		for _, r := range s.rules {
			if e.standsBack(r) {
				continue // it is inactive
			}
			of := e.lossesOf(r)
			whole = whole || len(of) == 0 && e.sees(r)
			lost = appendNew(lost, of...)
		}
		if !whole {
			out = appendNew(out, lost...)
		}
	}
	slices.Sort(out)
	return out
}

// lossesOf returns the sources of the rule that have recently lost records which no other source
// has.
func (e *Engine) lossesOf(r *Rule) (out []string) {
	for stem, st := range e.stems {
		if st.LossyUntil != 0 && e.needs(r, stem, st, true) {
			out = append(out, stem+" ("+st.LossReason+")")
		}
	}
	return out
}

// needs reports whether the rule misses events while the source is down, or has lost records. It does
// not if another log has all kernel messages, or if the loss includes none.
func (e *Engine) needs(r *Rule, stem string, st *stemState, lost bool) bool {
	return slices.Contains(r.stems, stem) || slices.ContainsFunc(r.named, func(n named) bool {
		return n.has(stem, st.Kernel) && !(n.spares(stem, st) && (lost && st.KernelLossyUntil == 0 || e.hasKernelLines(stem)))
	})
}

// hasKernelLines reports whether a log with all kernel messages is up, other than the one of the stem.
func (e *Engine) hasKernelLines(except string) bool {
	for stem, st := range e.stems {
		if stem != except && st.Kernel && st.Up && st.KernelLossyUntil == 0 {
			return true
		}
	}
	return false
}
