package detector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
)

// named is what a rule looks at of sources that have names of their own: logs, checks
// or gauges. It needs all of those that there are, for each reports something else,
// while stems without names are different ways to see one thing, of which one is
// enough.
type named struct {
	stem  string   // of the family: event.LogStem, event.CheckStem or event.GaugeStem
	stems []string // with names; nil: all there are
	// kernel: of the logs that have the kernel's lines, too, of which one is enough.
	kernel bool
}

func newNamed(stem string, names []string) named {
	n := named{stem: stem}
	for _, name := range names {
		if stem == event.LogStem && name == event.KernelLogs {
			n.kernel = true
		}
		n.stems = append(n.stems, event.NamedStem(stem, name))
	}
	return n
}

// has reports whether what a source of the stem says is of interest; kernel: it is a log
// that has the kernel's lines.
func (n *named) has(stem string, kernel bool) bool {
	if stem == n.stem || n.kernel && kernel {
		return true
	}
	return n.member(stem) && (n.stems == nil || slices.Contains(n.stems, stem))
}

// member reports whether the stem is one of the family's with a name.
func (n *named) member(stem string) bool {
	return len(stem) > len(n.stem) && stem[len(n.stem)] == '/' && strings.HasPrefix(stem, n.stem)
}

// spares reports whether any other log with the kernel's lines does as well.
func (n *named) spares(stem string, st *stemState) bool {
	return n.kernel && st.Kernel && !slices.Contains(n.stems, stem)
}

// String names what is waited for.
func (n *named) String() string {
	if n.stems == nil {
		return n.stem
	}
	return strings.Join(n.stems, ", ")
}

// sight is what sources together see.
type sight uint8

const (
	unreported sight = iota // none has said anything yet
	seeing
	blind
)

// sightOf returns what the sources see that n is about, and where they are blind
// which are down and why.
func (e *Engine) sightOf(n *named) (s sight, why []string) {
	reported := 0
	var silent []string // logs of the kernel's that are down
	kernel := false     // one is up
	for stem, st := range e.stems {
		if stem == n.stem || !st.Known || !n.has(stem, st.Kernel) {
			continue
		}
		reported++
		switch {
		case st.Up:
			kernel = kernel || st.Kernel
		case n.spares(stem, st):
			silent = append(silent, stem+": "+st.Reason)
		default:
			why = append(why, stem+": "+st.Reason)
		}
	}
	if !kernel {
		why = append(why, silent...)
	}
	if n.stems == nil && e.crowded[n.stem] {
		reported++
		why = append(why, fmt.Sprintf("%s: more than %d sources", n.stem, MaxStems))
	}
	if reported > 0 {
		if len(why) > 0 {
			slices.Sort(why)
			return blind, why
		}
		return seeing, nil
	}
	// The family's own state is that of whoever says nothing himself.
	switch st := e.stems[n.stem]; {
	case st == nil || !st.Known:
		return unreported, nil
	case st.Up:
		return seeing, nil
	default:
		return blind, []string{n.String() + ": " + st.Reason}
	}
}

// blindTo reports whether all sources of the rule are known to be down.
func (e *Engine) blindTo(r *Rule) bool {
	for _, s := range r.stems {
		if st := e.stems[s]; st == nil || !st.Known || st.Up {
			return false
		}
	}
	for i := range r.named {
		if s, _ := e.sightOf(&r.named[i]); s != blind {
			return false
		}
	}
	return len(r.stems)+len(r.named) > 0
}

// sees reports whether a source of the rule is up; of named ones, all it looks at.
func (e *Engine) sees(r *Rule) bool {
	for _, s := range r.stems {
		if st := e.stems[s]; st != nil && st.Up {
			return true
		}
	}
	for i := range r.named {
		if s, _ := e.sightOf(&r.named[i]); s == seeing {
			return true
		}
	}
	return false
}

// looksAt reports whether the rule gets events of a source of the stem, of which st is known.
func (r *Rule) looksAt(stem string, st *stemState) bool {
	return slices.Contains(r.stems, stem) || slices.ContainsFunc(r.named, func(n named) bool { return n.has(stem, st.Kernel) })
}

// checkRan notes whether a check program can report: it is its own source.
func (e *Engine) checkRan(ev *event.Event) (changed *event.SourceData) {
	if ev.Check == nil {
		return nil
	}
	d := &event.SourceData{Stem: event.NamedStem(event.CheckStem, ev.Check.Check), Up: ev.Check.Status != event.CheckUnknown}
	if !d.Up {
		d.Reason = cmp.Or(ev.Check.Message, "unknown")
	}
	if st := e.stems[d.Stem]; st != nil && st.Known && st.Up == d.Up && (d.Up || st.Reason == reasonText(d.Reason)) {
		return nil
	}
	return d
}
