package detector

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector/problem"
)

// RateLimit bounds how many events of a rule are recorded one by one: a burst of Count, then Count
// in each Within. See [Engine.Admit].
type RateLimit struct {
	Count  int           `yaml:"count"` // 0: no limit
	Within time.Duration `yaml:"within"`
}

// Bounds and times of rate limits.
const (
	// defaultLimitCount and defaultLimitWithin apply to log rules, because any process may write to
	// a log: a journal of 64 MiB holds two days of the most that one rule may record.
	defaultLimitCount  = 1000
	defaultLimitWithin = time.Hour
	// limitOfThreshold is the minimum default RateLimit.Count, in multiples of the threshold: each
	// group needs a whole threshold before its problem fires, so ten groups can fire at once.
	limitOfThreshold = 10
	// maxLimitCount is the largest Count a rule may set: a bigger burst fills the journal.
	maxLimitCount = 50_000
	// releaseEvery is the minimum time for which events are withheld and merged into one: a flood in
	// one problem then takes 720 events an hour, which leaves a part of the default limit for other
	// problems.
	releaseEvery = 5 * time.Second
	// maxWithheld bounds the withheld events that a snapshot restores, to as many as one rule may
	// have problems.
	maxWithheld = maxMaxGroups
	// LostToRateLimit is the reason of [event.LostData] for events that would have begun,
	// changed or ended problems.
	LostToRateLimit = "rate-limit"
)

// budgets limits how many more events of a rule are recorded.
type budgets struct {
	counts  budget // for all its events
	changes budget // in addition, for events that begin, change or end a problem
}

func newBudgets(l RateLimit) budgets {
	if l.Count == 0 {
		return budgets{}
	}
	interval := l.Within / time.Duration(l.Count)
	b := budget{interval: interval, size: interval * time.Duration(l.Count)}
	return budgets{b, b}
}

// budget is a token bucket. It is implemented here because each matched line is charged to a budget:
// golang.org/x/time/rate takes a lock at each call and computes in floating point.
type budget struct {
	interval time.Duration // time that adds an event; zero: no limit
	size     time.Duration // time that fills the empty budget
	full     time.Duration // since boot: when it is full again
}

// spent reports whether the budget has no event left.
func (b *budget) spent(now time.Duration) bool { return max(b.full-now, 0)+b.interval > b.size }

// take charges an event to the budget. It returns false if the budget is exhausted.
func (b *budget) take(now time.Duration) bool {
	if b.spent(now) {
		return false
	}
	b.full = max(b.full, now) + b.interval
	return true
}

// left returns the number of events left.
func (b *budget) left(now time.Duration) int {
	return int((b.size - max(b.full-now, 0)) / b.interval)
}

// limits tracks the rules beyond their RateLimit and their withheld events.
type limits struct {
	spent   map[*ruleState]struct{} // rules without budget, as of their latest event
	byKey   map[string]*withheld
	queue   []*withheld // oldest first
	perRule map[string]int
	lost    map[string]uint64 // number of lost events by source
	lostAt  time.Duration     // time of the first lost event, since boot
	key     []byte            // scratch memory, like the fields below
	rules   []string

	admitted []*event.Event
}

// withheld holds events that count in the same problems and wait to be recorded as one.
type withheld struct {
	Event *event.Event  `json:"event"` // the latest
	Times uint64        `json:"times"`
	Since time.Duration `json:"since"` // time of the first, since boot
	Rules []string      `json:"rules"`
	Key   string        `json:"key,omitempty"` // identifies the problems; empty: saved by a version without it

	saved bool // restored from a snapshot
}

func newLimits() limits {
	return limits{
		spent: make(map[*ruleState]struct{}), byKey: make(map[string]*withheld),
		perRule: make(map[string]int), lost: make(map[string]uint64),
	}
}

// charge charges an event to the budgets of the rules that its line matched.
func (e *Engine) charge(hits []logpattern.Hit, now event.Moment) {
	for i := range hits {
		r := e.logs.rules[hits[i].Pattern]
		if r.counts.interval == 0 || i > 0 && e.logs.rules[hits[i-1].Pattern] == r {
			continue
		}
		if !r.counts.take(now.Boot) || r.counts.spent(now.Boot) {
			e.limits.spent[r] = struct{}{}
		}
	}
}

// limited reports whether the rule has no budget left, or withheld events wait for it.
func (e *Engine) limited(r *ruleState, now time.Duration) bool {
	return r.counts.interval > 0 && (e.limits.perRule[r.Name] > 0 || r.counts.spent(now))
}

// Admit returns the events to pass to [Engine.Observe] and to record: the event, preceded by the
// withheld events of problems that it ends. The slice is valid until the next call. It is empty if
// all rules that the event's line matched are beyond their RateLimit, and the event
//
//   - only counts in problems that already fire: Admit withholds it, and [Engine.Release] returns
//     one event for all of these;
//   - would begin, change or end a problem, and there were too many of these as well: the event is
//     lost, and an event reports the loss, so that conditions become Unknown: Admit returns it
//     unless the source has just reported one, else Release does;
//   - has no effect.
//
// A replay of recorded events does not call Admit.
func (e *Engine) Admit(ev *event.Event, now event.Moment) []*event.Event {
	if !e.admits(ev, now) {
		return e.urgentLoss(ev.Source, now)
	}
	e.limits.admitted = append(append(e.limits.admitted[:0], e.releaseBefore(ev, now)...), ev)
	return e.limits.admitted
}

// urgentLoss returns an event for the losses of a source if no recent loss affects conditions yet,
// because the source may not read the lost lines again after a kill.
func (e *Engine) urgentLoss(stem string, now event.Moment) []*event.Event {
	n := e.limits.lost[stem]
	if n == 0 {
		return nil
	}
	if st := e.stems[stem]; st == nil && len(e.stems) >= MaxStems || st != nil && st.LossyUntil > now.Boot+lossyFor-releaseEvery {
		return nil
	}
	delete(e.limits.lost, stem)
	e.limits.admitted = append(e.limits.admitted[:0], lossOf(stem, n, now))
	return e.limits.admitted
}

// lossOf returns an event that reports n events lost to rate limits.
func lossOf(stem string, n uint64, now event.Moment) *event.Event {
	return &event.Event{
		Kind: event.Lost, Time: now.Wall, BootTime: event.Duration(now.Boot), CPU: event.NoCPU, Source: stem,
		Lost: &event.LostData{Stem: stem, Count: n, Reason: LostToRateLimit},
	}
}

// admits reports whether the event itself is to be observed. Otherwise it withholds or drops it.
func (e *Engine) admits(ev *event.Event, now event.Moment) bool {
	if ev.Log == nil || !e.anySpent(now.Boot) || e.Seen(ev) {
		return true
	}
	l := &e.logs
	all := l.match(ev.Log)
	hits, id := e.news(ev, all)
	others := len(hits) < len(all) // other rules have got the line from another log
	if ev.Log.Origin == event.OriginProcess {
		hits = l.forNoCondition(hits)
	}
	if len(hits) == 0 {
		return true
	}
	for i := range hits {
		if !e.limited(l.rules[hits[i].Pattern], now.Boot) {
			return true
		}
	}
	at := occurredAt(ev, now)
	e.look(ev)
	entries, heard, changes := e.effects(hits)
	e.act.ev = nil
	if changes && e.changeAllowed(hits, now.Boot) {
		return true
	}
	e.remember(id)
	for i := range hits {
		if r := l.rules[hits[i].Pattern]; i == 0 || l.rules[hits[i-1].Pattern] != r {
			r.limited++
		}
	}
	if changes {
		if len(e.limits.lost) == 0 {
			e.limits.lostAt = now.Boot
		}
		e.limits.lost[ev.Source]++
		return false
	}
	for _, r := range heard {
		r.absence.Heard = max(r.absence.Heard, at.Boot)
	}
	for _, en := range entries {
		en.seen(false, at)
	}
	if len(entries) > 0 && !others { // other rules would count the merged event again
		e.withhold(ev, now)
	}
	return false
}

// anySpent reports whether a rule may be beyond its limit.
func (e *Engine) anySpent(now time.Duration) bool {
	for r := range e.limits.spent {
		if !e.limited(r, now) {
			delete(e.limits.spent, r)
		}
	}
	return len(e.limits.spent) > 0
}

// changeAllowed charges a change to the rules' change budgets. One rule with budget is enough.
func (e *Engine) changeAllowed(hits []logpattern.Hit, now time.Duration) (allowed bool) {
	for i := range hits {
		if r := e.logs.rules[hits[i].Pattern]; i == 0 || e.logs.rules[hits[i-1].Pattern] != r {
			allowed = r.changes.take(now) || allowed
		}
	}
	return allowed
}

// effects returns the problems that the line would count in and the absence rules that wait for
// such lines. changes reports whether the line would begin, change or end a problem. effects sets
// limits.key to the identity of the problems, and limits.rules to the rules that matched.
func (e *Engine) effects(hits []logpattern.Hit) (entries []*entry, heard []*ruleState, changes bool) {
	l := &e.logs
	e.limits.key, e.limits.rules = e.limits.key[:0], e.limits.rules[:0]
	for i := range hits {
		if r, x, ok := e.lineEnds(hits, i); ok {
			_, _, ends := e.endedBy(r, &l.ev, x)
			changes = changes || ends
		}
	}
	for i := range hits {
		r, ok := e.lineMatches(&hits[i])
		if !ok {
			continue
		}
		if r.awaits() {
			changes = changes || r.series.live() || r.absence.Heard == 0
			heard = append(heard, r)
			continue
		}
		en := e.countsIn(r, &l.ev)
		changes = changes || en == nil || en.p.State != problem.Firing || e.worsened(en)
		var group string
		if en != nil {
			entries, group = append(entries, en), en.p.Group
		} else {
			group = string(e.group)
		}
		e.limits.rules = append(e.limits.rules, r.Name)
		for _, part := range []string{r.Name, group, string(e.severity(r))} {
			e.limits.key = append(append(e.limits.key, part...), 0)
		}
	}
	return entries, heard, changes
}

// countsIn returns the problem that the rule's event would count in, or nil if it would begin a
// new one.
func (e *Engine) countsIn(r *ruleState, ev *event.Event) *entry {
	s := r.series
	e.group = appendGroup(e.group[:0], r.groupBy, ev)
	if en := s.entries[string(e.group)]; en != nil {
		return en
	}
	if _, ok := s.folded(e.group); ok {
		return s.entries[OverflowGroup]
	}
	return nil
}

// withhold keeps an event until Release.
func (e *Engine) withhold(ev *event.Event, now event.Moment) {
	l := &e.limits
	w := l.byKey[string(l.key)]
	if w == nil {
		w = &withheld{Since: now.Boot, Rules: slices.Clone(l.rules), Key: string(l.key)}
		e.enqueue(w)
	}
	w.Event = ev.Clone()
	w.Times++
}

func (e *Engine) enqueue(w *withheld) {
	if w.Key != "" {
		e.limits.byKey[w.Key] = w
	}
	e.limits.queue = append(e.limits.queue, w)
	for _, name := range w.Rules {
		e.limits.perRule[name]++
	}
}

// leave removes w from everything but the queue.
func (l *limits) leave(w *withheld) {
	delete(l.byKey, w.Key)
	for _, name := range w.Rules {
		if l.perRule[name]--; l.perRule[name] == 0 {
			delete(l.perRule, name)
		}
	}
}

// recordedTogether prepares for an event that [Engine.Release] returned, before it is counted. It
// drops withheld events that a snapshot restored, because the event contains them: in a replay, the
// event was recorded after that snapshot. It remembers the latest line, which may be read again;
// the identities of the other lines are not recorded.
func (e *Engine) recordedTogether(ev *event.Event, hits []logpattern.Hit) {
	one := *ev
	one.Times = 0
	_, id := e.news(&one, slices.Clone(hits))
	e.remember(id)
	l := &e.limits
	if len(l.queue) == 0 {
		return
	}
	e.effects(hits)
	if w := l.byKey[string(l.key)]; w != nil && w.saved {
		l.leave(w)
		l.queue = slices.DeleteFunc(l.queue, func(o *withheld) bool { return o == w })
	}
}

// Release returns merged events for the events that [Engine.Admit] withheld or lost, as far as the
// limits now allow. Observe and record each like any other event.
func (e *Engine) Release(now event.Moment) []*event.Event {
	if len(e.limits.queue) == 0 && len(e.limits.lost) == 0 {
		return nil
	}
	left := make(map[*ruleState]int)
	return e.release(now, func(w *withheld) bool {
		if now.Boot-w.Since < releaseEvery {
			return false
		}
		for _, name := range w.Rules {
			r := e.byName[name]
			if r == nil || r.counts.interval == 0 {
				continue
			}
			if _, ok := left[r]; !ok {
				left[r] = r.counts.left(now.Boot)
			}
			if left[r] < 1 {
				return false
			}
		}
		for _, name := range w.Rules {
			if r := e.byName[name]; r != nil {
				left[r]--
			}
		}
		return true
	})
}

// Flush releases all withheld events, before the engine stops.
func (e *Engine) Flush(now event.Moment) []*event.Event {
	return e.release(now, func(*withheld) bool { return true })
}

// releaseBefore releases the withheld events of problems that the event ends, because they came
// before it.
func (e *Engine) releaseBefore(ev *event.Event, now event.Moment) []*event.Event {
	if len(e.limits.queue) == 0 {
		return nil
	}
	ended := e.ends(ev)
	return e.release(now, func(w *withheld) bool {
		return slices.ContainsFunc(ended, func(en *entry) bool { return e.waitsFor(w, en) })
	})
}

// ends returns the problems that the event ends.
func (e *Engine) ends(ev *event.Event) (ended []*entry) {
	add := func(r *ruleState, ev *event.Event, x *expr) {
		if en, _, ok := e.endedBy(r, ev, x); ok && en != nil {
			ended = append(ended, en)
		} else if ok {
			ended = append(ended, r.series.entries[OverflowGroup])
		}
	}
	if ev.Log != nil {
		l := &e.logs
		hits, _ := e.news(ev, l.match(ev.Log))
		if ev.Log.Origin == event.OriginProcess {
			hits = l.forNoCondition(hits)
		}
		e.look(ev)
		for i := range hits {
			if r, x, ok := e.lineEnds(hits, i); ok {
				add(r, &l.ev, x)
			}
		}
		e.act.ev = nil
		return ended
	}
	e.act.ev = ev
	if rules := e.byKind[ev.Kind]; rules != nil {
		for _, r := range rules.clear {
			if e.mayEnd(r, ev) {
				add(r, ev, r.clearWhen)
			}
		}
	}
	e.act.ev = nil
	return ended
}

// waitsFor reports whether the withheld events count in a problem.
func (e *Engine) waitsFor(w *withheld, en *entry) bool {
	for part := range slices.Chunk(strings.Split(w.Key, "\x00"), 3) { // rule, group, severity
		if r := e.byName[part[0]]; r != nil && r.series == en.rule.series && part[1] == en.p.Group {
			return true
		}
	}
	return false
}

// overBefore reports whether the event was withheld until quiet ended its permanent problem. Such
// an event counts in that problem while it is remembered, and begins no new one.
func (e *Engine) overBefore(r *ruleState, ev *event.Event, at, now event.Moment) bool {
	if ev.Log == nil || ev.Times == 0 || r.Temporary() || r.ClearAfter == 0 || at.Boot+r.ClearAfter > now.Boot {
		return false
	}
	en := e.countsIn(r, ev)
	if en != nil && en.p.State == problem.Firing {
		return false
	}
	if en != nil {
		en.p.Count += ev.Times
	}
	return true
}

func (e *Engine) release(now event.Moment, due func(*withheld) bool) (out []*event.Event) {
	l := &e.limits
	l.queue = slices.DeleteFunc(l.queue, func(w *withheld) bool {
		if !due(w) {
			return false
		}
		w.Event.Times = w.Times
		out = append(out, w.Event)
		l.leave(w)
		return true
	})
	if len(l.lost) > 0 && due(&withheld{Since: l.lostAt}) {
		for _, stem := range slices.Sorted(maps.Keys(l.lost)) {
			out = append(out, lossOf(stem, l.lost[stem], now))
		}
		clear(l.lost)
	}
	return out
}

// resumeLimits restores the withheld and lost events from a snapshot.
func (e *Engine) resumeLimits(s *snapshot) {
	e.limits = newLimits()
	maps.Copy(e.limits.lost, s.Lost)
	e.limits.lostAt = s.LostAt
	for _, w := range s.Withheld[:min(len(s.Withheld), maxWithheld)] {
		if w != nil && w.Event != nil {
			w.saved = true
			e.enqueue(w)
		}
	}
}
