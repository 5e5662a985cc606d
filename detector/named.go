package detector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
)

// named describes the named sources that a rule reads: logs, checks, gauges or services. The rule
// needs all of them, because each reports something else. Stems without names are different ways to
// detect the same fault, so one of them is enough.
type named struct {
	stem  string   // of the family: event.LogStem, event.CheckStem, event.GaugeStem or event.ServiceStem
	stems []string // with names; nil: all of the family but the crash log
	// kernel: the rule also reads the logs that contain kernel messages; one of them is enough.
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

// has reports whether n includes a source of the stem; kernel: it is a log that contains
// kernel messages.
func (n *named) has(stem string, kernel bool) bool {
	if stem == n.stem || n.kernel && kernel {
		return true
	}
	if n.stems == nil { // the crash log is only for rules that name it
		return n.member(stem) && stem != event.NamedStem(event.LogStem, event.CrashLog)
	}
	return n.member(stem) && slices.Contains(n.stems, stem)
}

// member reports whether the stem is a named member of the family.
func (n *named) member(stem string) bool {
	return len(stem) > len(n.stem) && stem[len(n.stem)] == '/' && strings.HasPrefix(stem, n.stem)
}

// spares reports whether n has the source only for its kernel messages: then another log with these can
// replace it.
func (n *named) spares(stem string, st *stemState) bool {
	return n.kernel && st.Kernel && !slices.Contains(n.stems, stem)
}

// String returns the names of the sources.
func (n *named) String() string {
	if n.stems == nil {
		return n.stem
	}
	return strings.Join(n.stems, ", ")
}

// sight is the combined state of sources.
type sight uint8

const (
	unreported sight = iota // none has reported its state yet
	seeing
	blind
)

// sightOf returns the combined state of n's sources and, if blind, which are down and why.
func (e *Engine) sightOf(n *named) (s sight, why []string) {
	reported := 0
	var silent []string // logs with kernel messages that are down
	kernel := false     // a log with kernel messages is up
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
		switch {
		case len(why) > 0:
			slices.Sort(why)
			return blind, why
		case e.awaitsLogs(n, kernel):
			return unreported, nil
		}
		return seeing, nil
	}
	// The family's state applies to members that have not reported their own.
	switch st := e.stems[n.stem]; {
	case st == nil || !st.Known:
		return unreported, nil
	case st.Up:
		return seeing, nil
	default:
		return blind, []string{n.String() + ": " + st.Reason}
	}
}

// awaitsLogs reports whether some of n's logs may not have reported their state yet: the family does
// when all have. kernel: a log with kernel messages is up.
func (e *Engine) awaitsLogs(n *named, kernel bool) bool {
	if st := e.stems[n.stem]; n.stem != event.LogStem || st != nil && st.Known {
		return false
	}
	return n.stems == nil || slices.ContainsFunc(n.stems, func(stem string) bool {
		st := e.stems[stem]
		return (st == nil || !st.Known) && !(kernel && stem == event.NamedStem(event.LogStem, event.KernelLogs))
	})
}

// blindTo reports whether all sources of the rule are known to be down. A family of named sources
// (logs, checks, gauges, services) counts as down if one of those that the rule uses is down.
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

// sees reports whether a source of the rule is up; of named sources, all must be.
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

// looksAt reports whether the rule gets events of a source of the stem, whose state is st.
func (r *Rule) looksAt(stem string, st *stemState) bool {
	return slices.Contains(r.stems, stem) || slices.ContainsFunc(r.named, func(n named) bool { return n.has(stem, st.Kernel) })
}

// checkRan returns the new state of a check program as a source, or nil if it is unchanged: each
// check program is its own source, and is down while its status is unknown.
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
