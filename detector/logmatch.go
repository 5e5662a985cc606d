package detector

import (
	"bytes"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
)

// maxMatchers bounds the cached matchers of either kind. A configuration has a handful of logs, but
// an event may name any log.
const maxMatchers = 64

// logMatching finds the rules for a log line. It matches the lines of an event again
// although the source did so, because a replay may use other rules.
type logMatching struct {
	rules []*ruleState // by index of the pattern
	set   *RuleSet
	// Matchers by log, for lines that the kernel printed and for others.
	kernel, others map[string]*logpattern.Matcher

	hits     logpattern.Hits
	lines    []byte
	ev       event.Event // the event as rules see it, with the captures of their pattern
	data     event.LogData
	captures []map[string]string // by index of the pattern: those of its latest match, nil before

	matches   []uint64 // by index of the pattern
	unmatched uint64
}

// install switches to another rule set. It keeps the counts of patterns with the same name.
func (l *logMatching) install(set *RuleSet, byName map[string]*ruleState) {
	counts := l.counts()
	*l = logMatching{
		set: set, rules: make([]*ruleState, len(set.owners)),
		kernel: make(map[string]*logpattern.Matcher), others: make(map[string]*logpattern.Matcher),
		captures: make([]map[string]string, len(set.owners)), matches: make([]uint64, len(set.owners)), unmatched: l.unmatched,
	}
	for i, o := range set.owners {
		l.rules[i] = byName[o.rule.Name]
		l.matches[i] = counts[set.patterns.Pattern(i).Name]
	}
}

// counts returns how often each pattern matched, by name, without those that never did.
func (l *logMatching) counts() map[string]uint64 {
	out := make(map[string]uint64)
	for i, n := range l.matches {
		if n > 0 {
			out[l.set.patterns.Pattern(i).Name] = n
		}
	}
	return out
}

// match returns the patterns that match the text at its end.
func (l *logMatching) match(d *event.LogData) []logpattern.Hit {
	matchers := l.others
	if d.FromKernel() {
		matchers = l.kernel
	}
	m := matchers[d.Log]
	if m == nil {
		names := []string{d.Log, event.KernelLogs}
		if !d.FromKernel() || d.Log == event.CrashLog {
			names = names[:1]
		}
		m = l.set.patterns.NewMatcher(names...)
		if len(matchers) < maxMatchers {
			matchers[d.Log] = m
		}
	}
	text := d.Text
	if len(text) > event.MaxLogText {
		text = event.LogText(text) // our sources never send such a text
	}
	l.lines = append(l.lines[:0], text...)
	m.Reset() // lines of the previous event are not context of these
	rest := bytes.TrimSuffix(l.lines, []byte{'\n'})
	for more := true; more; {
		var line []byte
		line, rest, more = bytes.Cut(rest, []byte{'\n'})
		m.Match(line, &l.hits)
	}
	return l.hits.Hits
}

// show sets the text and captures in the event to those of the hit.
func (l *logMatching) show(h *logpattern.Hit) {
	if len(h.Context) != len(l.data.Text) { // both end where the text ends
		l.data.Text = string(h.Context)
	}
	l.data.Captures = l.capturesOf(h)
}

// capturesOf returns the texts of a hit's captures by name; a rule's names are unique. It keeps the
// texts of each pattern, because the lines of a storm often repeat them.
func (l *logMatching) capturesOf(h *logpattern.Hit) map[string]string {
	if len(h.Captures) == 0 {
		return nil
	}
	m := l.captures[h.Pattern]
	if m == nil {
		m = make(map[string]string, len(h.Captures))
		l.captures[h.Pattern] = m
	}
	if len(m) == len(h.Captures) && !slices.ContainsFunc(h.Captures, func(c logpattern.Capture) bool {
		text, ok := m[c.Name]
		return !ok || text != string(c.Text)
	}) {
		return m
	}
	clear(m)
	for _, c := range h.Captures {
		m[c.Name] = display.Prefix(string(c.Text), event.MaxFieldText)
	}
	return m
}

// lineLogged passes a line to the rules whose patterns match it. As with other
// kinds, it clears problems first.
func (e *Engine) lineLogged(ev *event.Event, now event.Moment) {
	l := &e.logs
	if ev.Log == nil || len(l.rules) == 0 {
		return
	}
	hits := l.match(ev.Log)
	if len(hits) == 0 {
		l.unmatched++
		return
	}
	if id, ok := identity(ev); ok {
		var ids lineID
		hits, ids = e.newHits(ev, hits, id, !e.recent.add(id))
		if len(hits) == 0 {
			e.duplicates++
			return
		}
		if ids.here != 0 {
			e.recent.add(ids.here)
		}
	}
	if ev.Log.Origin == event.OriginProcess {
		hits = l.forNoCondition(hits)
	}
	e.charge(hits, now)
	at := occurredAt(ev, now)
	e.look(ev)
	if ev.Times > 0 {
		e.recordedTogether(ev, hits)
	}
	e.clearing = true
	for i := range hits {
		l.matches[hits[i].Pattern] += ev.Occurrences()
		if r, x, ok := e.lineEnds(hits, i); ok {
			e.clearGroup(r, &l.ev, x, now)
		}
	}
	e.clearedAll()
	for i := range hits {
		if r, ok := e.lineMatches(&hits[i]); ok {
			e.occur(r, &l.ev, at, now)
		}
	}
	e.act.ev = nil
}

// lineMatches reports whether the line of a hit matches the hit's rule, and shows the hit.
func (e *Engine) lineMatches(h *logpattern.Hit) (r *ruleState, ok bool) {
	l := &e.logs
	r = l.rules[h.Pattern]
	if l.set.owners[h.Pattern].clear || e.standsBack(r.Rule) {
		return r, false
	}
	l.show(h)
	return r, e.test(r, r.when)
}

// look makes expressions read a copy of a line's event, which [logMatching.show] modifies.
func (e *Engine) look(ev *event.Event) {
	l := &e.logs
	l.ev, l.data = *ev, *ev.Log
	l.ev.Log = &l.data
	e.act.ev = &l.ev
}

// lineID holds the identities of a line; zero means none.
type lineID struct {
	line uint64
	here uint64 // of a kernel message, for rules that read it from this log only
}

// news removes the hits of rules that have already got the line, and returns the line's identities.
func (e *Engine) news(ev *event.Event, hits []logpattern.Hit) ([]logpattern.Hit, lineID) {
	id, ok := identity(ev)
	if !ok {
		return hits, lineID{}
	}
	return e.newHits(ev, hits, id, e.recent.has(id))
}

// newHits is [Engine.news] for a line with a known identity; seen: the line was remembered before.
// Each rule gets a kernel message once, even if the message came first in a log that the rule does
// not read.
func (e *Engine) newHits(ev *event.Event, hits []logpattern.Hit, id uint64, seen bool) ([]logpattern.Hit, lineID) {
	ids := lineID{line: id}
	if !kernelMessage(ev) {
		if seen {
			hits = nil
		}
		return hits, ids
	}
	return slices.DeleteFunc(hits, func(h logpattern.Hit) bool {
		r := e.logs.rules[h.Pattern]
		if len(r.Logs) == 0 || slices.Contains(r.Logs, event.KernelLogs) {
			return seen
		}
		ids.here = inLog(id, ev.Log.Log)
		return slices.ContainsFunc(r.Logs, func(log string) bool { return e.recent.has(inLog(id, log)) })
	}), ids
}

// remember notes that a line was observed.
func (e *Engine) remember(id lineID) {
	for _, id := range []uint64{id.line, id.here} {
		if id != 0 {
			e.recent.add(id)
		}
	}
}

// forNoCondition removes the hits of rules with a condition, because any process can make the
// kernel print any text that starts with the process's name.
func (l *logMatching) forNoCondition(hits []logpattern.Hit) []logpattern.Hit {
	return slices.DeleteFunc(hits, func(h logpattern.Hit) bool { return l.rules[h.Pattern].Condition != "" })
}

// lineEnds reports whether hit i can end a problem of a rule, and shows that hit to the rule. A
// match of clearPattern ends the problem of its group; a match of pattern does if x, the rule's
// clearWhen, is true. A line that fully matches the rule ends none of its problems.
func (e *Engine) lineEnds(hits []logpattern.Hit, i int) (r *ruleState, x *expr, ok bool) {
	l := &e.logs
	h := &hits[i]
	r = l.rules[h.Pattern]
	byPattern := l.set.owners[h.Pattern].clear
	if !r.series.live() || !byPattern && !slices.Contains(r.clearKinds, event.Log) {
		return nil, nil, false
	}
	own := h // the hit of the rule's pattern, which directly precedes that of its clearPattern
	if byPattern {
		if own = nil; i > 0 && l.rules[hits[i-1].Pattern] == r {
			own = &hits[i-1]
		}
	}
	if own != nil {
		if l.show(own); e.test(r, r.when) {
			return nil, nil, false
		}
	}
	if byPattern {
		l.show(h)
		return r, nil, true
	}
	return r, r.clearWhen, true
}
