package detector

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector/problem"
)

// RateLimit bounds how many events of a rule are recorded one by one: Count at once, and
// after that as many in each Within. See [Engine.Admit].
type RateLimit struct {
	Count  int           `yaml:"count"` // 0: no limit
	Within time.Duration `yaml:"within"`
}

// Bounds and times of rate limits.
const (
	// defaultLimitCount and defaultLimitWithin are those of log rules: a journal of 64 MiB
	// holds two days of what one rule may record, whoever writes into its logs.
	defaultLimitCount  = 1000
	defaultLimitWithin = time.Hour
	// limitOfThreshold is the least RateLimit.Count of a rule, in thresholds: each group
	// takes one before its problem fires.
	limitOfThreshold = 10
	// maxLimitCount bounds what a rule may ask for: more in a moment fills the journal.
	maxLimitCount = 50_000
	// releaseEvery is how long events are withheld at least, to be recorded as one.
	releaseEvery = 5 * time.Second
	// maxWithheld bounds what a snapshot brings back.
	maxWithheld = 10_000
	// LostToRateLimit is the reason of [event.LostData] for events that would have begun,
	// changed or ended problems.
	LostToRateLimit = "rate-limit"
)

// budgets is what a rule may still have recorded.
type budgets struct {
	counts  *rate.Limiter // all its events; nil: without limit
	changes *rate.Limiter // beyond that, those that begin, change or end a problem
}

func newBudgets(l RateLimit) budgets {
	if l.Count == 0 {
		return budgets{}
	}
	every := rate.Every(l.Within / time.Duration(l.Count))
	return budgets{rate.NewLimiter(every, l.Count), rate.NewLimiter(every, l.Count)}
}

// limiterTime is a time since boot as limiters want it.
func limiterTime(boot time.Duration) time.Time { return time.Unix(0, int64(boot)) }

// limits is the rules beyond their RateLimit, and what is withheld of their events.
type limits struct {
	spent   map[*ruleState]struct{} // rules without budget, as of their latest event
	byKey   map[string]*withheld
	queue   []*withheld // the oldest first
	perRule map[string]int
	lost    map[string]uint64 // by source
	lostAt  time.Duration     // of the first of lost, since boot
	key     []byte            // scratch memory, as what follows
	rules   []string

	admitted []*event.Event
}

// withheld is the events that count in the same problems and wait to be recorded as one.
type withheld struct {
	Event *event.Event  `json:"event"` // the latest
	Times uint64        `json:"times"`
	Since time.Duration `json:"since"` // of the first, since boot
	Rules []string      `json:"rules"`
	Key   string        `json:"key,omitempty"` // which problems; empty: of a version that did not save it

	saved bool // brought back by a snapshot
}

func newLimits() limits {
	return limits{
		spent: make(map[*ruleState]struct{}), byKey: make(map[string]*withheld),
		perRule: make(map[string]int), lost: make(map[string]uint64),
	}
}

// charge takes an event off the budgets of the rules that its line was found for.
func (e *Engine) charge(hits []logpattern.Hit, now event.Moment) {
	t := limiterTime(now.Boot)
	for i := range hits {
		r := e.logs.rules[hits[i].Pattern]
		if r.counts == nil || i > 0 && e.logs.rules[hits[i-1].Pattern] == r {
			continue
		}
		if !r.counts.AllowN(t, 1) || r.counts.TokensAt(t) < 1 {
			e.limits.spent[r] = struct{}{}
		}
	}
}

// limited reports whether the rule has no budget, or others wait for what it has.
func (e *Engine) limited(r *ruleState, t time.Time) bool {
	return r.counts != nil && (e.limits.perRule[r.Name] > 0 || r.counts.TokensAt(t) < 1)
}

// Admit returns what is to be given to [Engine.Observe] and recorded: the event, and before it
// those that were withheld of problems which it ends. It is valid until the next call. It is
// nothing where all rules that the event's line was found for are beyond their RateLimit, and the
// event is one of these:
//
//   - One that only counts in problems which fire already: Admit withholds it, and [Engine.Release]
//     returns one event for all such.
//   - One that would begin, change or end a problem, of which there have been too many as well. It
//     is lost, and Release returns an event that says so: conditions become Unknown.
//   - One without any effect.
//
// Who replays what was recorded does not ask.
func (e *Engine) Admit(ev *event.Event, now event.Moment) []*event.Event {
	if !e.admits(ev, now) {
		return nil
	}
	e.limits.admitted = append(append(e.limits.admitted[:0], e.releaseBefore(ev, now)...), ev)
	return e.limits.admitted
}

// admits reports whether the event itself is to be observed, and withholds or loses it else.
func (e *Engine) admits(ev *event.Event, now event.Moment) bool {
	t := limiterTime(now.Boot)
	if ev.Log == nil || !e.anySpent(t) || e.Seen(ev) {
		return true
	}
	l := &e.logs
	all := l.match(ev.Log)
	hits, id := e.news(ev, all)
	others := len(hits) < len(all) // rules that have got it from another log
	if ev.Log.Origin == event.OriginProcess {
		hits = l.forNoCondition(hits)
	}
	if len(hits) == 0 {
		return true
	}
	for i := range hits {
		if !e.limited(l.rules[hits[i].Pattern], t) {
			return true
		}
	}
	at := occurredAt(ev, now)
	e.look(ev)
	entries, heard, changes := e.effects(hits)
	e.lookAway()
	if changes && e.changeAllowed(hits, t) {
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
	if len(entries) > 0 && !others { // the others would count again what stands for several lines
		e.withhold(ev, now)
	}
	return false
}

// anySpent reports whether a rule may be beyond its limit.
func (e *Engine) anySpent(t time.Time) bool {
	for r := range e.limits.spent {
		if !e.limited(r, t) {
			delete(e.limits.spent, r)
		}
	}
	return len(e.limits.spent) > 0
}

// changeAllowed takes a change off the budget that rules have for it. One with budget is enough.
func (e *Engine) changeAllowed(hits []logpattern.Hit, t time.Time) (allowed bool) {
	for i := range hits {
		if r := e.logs.rules[hits[i].Pattern]; i == 0 || e.logs.rules[hits[i-1].Pattern] != r {
			allowed = r.changes.AllowN(t, 1) || allowed
		}
	}
	return allowed
}

// effects returns the firing problems that the line would count in and the rules that wait for
// such lines, and reports whether it would do more than that. It leaves in limits.key what the
// problems are, and in limits.rules whose patterns matched.
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
		h := &hits[i]
		r := l.rules[h.Pattern]
		if l.set.owners[h.Pattern].clear || e.standsBack(r.Rule) {
			continue
		}
		if l.show(h); !e.test(r, r.when) {
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

// countsIn returns the problem that the rule's event would count in, nil where that would be
// new to it.
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

// leave removes w from all but the queue.
func (l *limits) leave(w *withheld) {
	delete(l.byKey, w.Key)
	for _, name := range w.Rules {
		if l.perRule[name]--; l.perRule[name] == 0 {
			delete(l.perRule, name)
		}
	}
}

// recordedTogether handles an event that [Engine.Release] has returned, before it counts. What
// a snapshot brought back to wait is part of it: in a replay, the event was recorded after that
// snapshot. Its latest line may be read again; the identities of the others are not recorded.
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

// Release returns events for those that [Engine.Admit] did not admit, as far as the limits
// allow by now. Each is to be observed and recorded as any other.
func (e *Engine) Release(now event.Moment) []*event.Event {
	if len(e.limits.queue) == 0 && len(e.limits.lost) == 0 {
		return nil
	}
	t := limiterTime(now.Boot)
	left := make(map[*ruleState]float64)
	return e.release(now, func(w *withheld) bool {
		if now.Boot-w.Since < releaseEvery {
			return false
		}
		for _, name := range w.Rules {
			r := e.byName[name]
			if r == nil || r.counts == nil {
				continue
			}
			if _, ok := left[r]; !ok {
				left[r] = math.Floor(r.counts.TokensAt(t))
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

// Flush is Release of everything: the engine ends.
func (e *Engine) Flush(now event.Moment) []*event.Event {
	return e.release(now, func(*withheld) bool { return true })
}

// releaseBefore is Release of all that counts in problems which the event ends: it came before.
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
		e.lookAway()
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

// waitsFor reports whether what is withheld counts in a problem.
func (e *Engine) waitsFor(w *withheld, en *entry) bool {
	for part := range slices.Chunk(strings.Split(w.Key, "\x00"), 3) { // rule, group, severity
		if r := e.byName[part[0]]; r != nil && r.series == en.rule.series && part[1] == en.p.Group {
			return true
		}
	}
	return false
}

// overBefore handles an event that was withheld until its permanent problem was over by quiet. It
// counts in that, as long as that is known, and begins none.
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
			out = append(out, &event.Event{
				Kind: event.Lost, Time: now.Wall, BootTime: event.Duration(now.Boot), CPU: event.NoCPU, Source: stem,
				Lost: &event.LostData{Stem: stem, Count: l.lost[stem], Reason: LostToRateLimit},
			})
		}
		clear(l.lost)
	}
	return out
}

// resumeLimits takes back what a snapshot says was withheld or lost.
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
