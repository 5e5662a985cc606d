package detector

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// Engine turns events into problems and conditions. It is a pure state machine: it reads no clock
// and takes the time from the now argument of each call. It measures all periods with the time
// since boot, which must not run backwards (an earlier time counts as the latest). The wall clock
// may run backwards; it is only displayed. An Engine is not safe for concurrent use.
type Engine struct {
	set        *RuleSet
	rules      []*ruleState
	byName     map[string]*ruleState
	byKind     map[event.Kind]*kindRules
	series     []*series
	conditions []*conditionState // sorted by type
	logs       logMatching
	stems      map[string]*stemState
	recent     *recent
	deadlines  deadlines
	mutes      mutes
	limits     limits
	absentDue  time.Duration // since boot: when the next absence rule fires; zero: none

	now         event.Moment
	lossyEnd    time.Duration // since boot: when the next loss expires; zero: none
	evaluations uint64
	duplicates  uint64
	changed     bool // by the latest event

	clearing bool     // the current event or deadline is ending problems
	cleared  []*entry // those that it has resolved; their effects are updated afterwards

	roomless     uint64          // state events dropped because of MaxStems
	lastRoomless string          // stem of the latest of them
	crowded      map[string]bool // families with sources beyond MaxStems

	// Scratch memory of one call.
	act   *activation
	group []byte
	text  []byte
	out   []problem.Transition
}

// kindRules holds the rules that an event of one kind can match or clear.
type kindRules struct {
	match []*ruleState
	clear []*ruleState
}

// NewEngine returns an engine without problems; every condition is Unknown
// until its source reports that it is up.
func NewEngine(rules *RuleSet) *Engine {
	e := &Engine{stems: make(map[string]*stemState), crowded: make(map[string]bool), recent: newRecent(), act: newActivation(), limits: newLimits()}
	e.install(rules)
	for _, c := range e.conditions {
		c.current = e.judge(c)
	}
	return e
}

// Rules returns the rules in force.
func (e *Engine) Rules() *RuleSet { return e.set }

// install builds the indexes for a rule set.
func (e *Engine) install(set *RuleSet) {
	e.set = set
	e.rules = make([]*ruleState, 0, len(set.rules))
	e.byName = make(map[string]*ruleState, len(set.rules))
	e.byKind = make(map[event.Kind]*kindRules)
	e.series = nil
	e.conditions = nil
	types := make(map[string]*conditionState)
	for _, spec := range set.Conditions() {
		c := &conditionState{spec: spec}
		types[spec.Type] = c
		e.conditions = append(e.conditions, c)
	}
	shared := make(map[[2]string]*series)
	ofKind := func(k event.Kind) *kindRules {
		if e.byKind[k] == nil {
			e.byKind[k] = &kindRules{}
		}
		return e.byKind[k]
	}
	for _, r := range set.rules {
		key := [2]string{r.Fault, r.Condition}
		if shared[key] == nil {
			s := &series{entries: make(map[string]*entry), condition: types[r.Condition]}
			shared[key] = s
			e.series = append(e.series, s)
			if s.condition != nil {
				s.condition.series = append(s.condition.series, s)
			}
		}
		rs := &ruleState{Rule: r, series: shared[key], budgets: newBudgets(r.RateLimit)}
		rs.series.rules = append(rs.series.rules, r)
		e.rules = append(e.rules, rs)
		e.byName[r.Name] = rs
		for _, k := range r.Events {
			if isLogKind(k) {
				continue // the pattern finds the rule
			}
			ofKind(k).match = append(ofKind(k).match, rs)
		}
		for _, k := range r.clearKinds {
			if isLogKind(k) {
				continue
			}
			ofKind(k).clear = append(ofKind(k).clear, rs)
		}
		if c := rs.series.condition; c != nil {
			c.rules, c.stems = append(c.rules, r), append(c.stems, r.stems...)
		}
	}
	for _, c := range e.conditions {
		slices.Sort(c.stems)
		c.stems = slices.Compact(c.stems)
	}
	for _, rs := range e.rules {
		for _, name := range rs.DependsOn {
			d := newDependency(rs, e.byName[name])
			rs.causes = append(rs.causes, d)
			d.cause.series.dependents = append(d.cause.series.dependents, d)
		}
	}
	e.logs.install(set, e.byName)
	e.bindMutes()
}

// Observe processes one event, after handling deadlines up to now. The event must be valid only
// during the call, because Observe copies what it keeps. The returned slice is valid until the next
// method call on the engine; the problems and conditions it points to may be kept.
func (e *Engine) Observe(ev *event.Event, now event.Moment) []problem.Transition {
	now = e.start(now)
	e.changed = true
	if ev == nil {
		return e.finish(now)
	}
	switch ev.Kind {
	case event.Source:
		e.sourceChanged(ev.SourceUp, now.Boot)
	case event.Lost:
		e.recordsLost(ev, now.Boot)
	case event.Check:
		e.sourceChanged(e.checkRan(ev), now.Boot)
	case event.Log:
		e.lineLogged(ev, now)
		return e.finish(now)
	case event.Gauge:
		e.changed = false
		if ev.Gauge == nil || ev.Gauge.Gone {
			e.gaugeGone(ev, now)
			return e.finish(now)
		}
	}
	rules := e.byKind[ev.Kind]
	if rules == nil {
		return e.finish(now)
	}
	if e.duplicate(ev) {
		return e.finish(now)
	}
	at := occurredAt(ev, now)
	e.act.ev = ev
	e.clearing = true
	for _, r := range rules.clear {
		if e.mayEnd(r, ev) {
			e.clearGroup(r, ev, r.clearWhen, now)
			e.stays(r, ev, at)
		}
	}
	e.clearedAll()
	for _, r := range rules.match {
		if r.reads(ev) && e.test(r, r.when) {
			e.occur(r, ev, at, now)
		}
	}
	e.act.ev = nil
	return e.finish(now)
}

// mayEnd reports whether the event can end a problem of the rule by its clearWhen. An event that
// matches the rule can't.
func (e *Engine) mayEnd(r *ruleState, ev *event.Event) bool {
	return r.series.live() && r.reads(ev) && !(slices.Contains(r.Events, ev.Kind) && e.test(r, r.when))
}

// duplicate reports whether the event is a record that was already observed, and counts duplicates.
func (e *Engine) duplicate(ev *event.Event) bool {
	id, ok := identity(ev)
	if !ok {
		return false
	}
	if e.recent.add(id) {
		return false
	}
	e.duplicates++
	return true
}

// occurredAt returns the event's own time if it is plausible, else now. A kernel time stamp is used
// even if the wall clock was changed since; the age of other events comes from the wall clock.
func occurredAt(ev *event.Event, now event.Moment) event.Moment {
	wall := ev.Time.Round(0)
	age := now.Wall.Sub(wall)
	if wall.IsZero() || age < 0 {
		wall, age = now.Wall, 0
	}
	if boot := time.Duration(ev.BootTime); boot > 0 && boot <= now.Boot {
		age = now.Boot - boot
	}
	return event.Moment{Wall: wall, Boot: now.Boot - min(age, forever)}
}

// Tick handles the deadlines up to now. The returned slice is valid until the next
// method call on the engine.
func (e *Engine) Tick(now event.Moment) []problem.Transition {
	now = e.start(now)
	return e.finish(now)
}

// NextDeadline returns when Tick must be called next, by the wall clock of the latest call. It can
// be earlier than necessary, never later. It returns false if there is no deadline.
func (e *Engine) NextDeadline() (event.Moment, bool) {
	next := earlier(earlier(e.lossyEnd, e.absentDue), e.mutes.end)
	if len(e.deadlines) > 0 {
		next = earlier(next, e.deadlines[0].due)
	}
	return e.moment(next), next != 0
}

// earlier returns the earlier of two times since boot; zero means no time.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// moment converts a time since boot to a Moment, by the wall clock of the latest call.
func (e *Engine) moment(boot time.Duration) event.Moment { return e.now.Add(boot - e.now.Boot) }

// Seen reports whether the event is a record that was already observed. A kernel message counts as
// seen once all rules that it matches have got it.
func (e *Engine) Seen(ev *event.Event) bool {
	id, ok := identity(ev)
	if !ok || !e.recent.has(id) {
		return false
	}
	if kernelMessage(ev) && len(e.logs.rules) > 0 {
		hits, _ := e.news(ev, e.logs.match(ev.Log))
		return len(hits) == 0
	}
	return true
}

// Problems returns copies of all problems: pending, firing, and those resolved
// in the last 15 minutes; sorted by rule and group.
func (e *Engine) Problems() []problem.Problem {
	var out []problem.Problem
	for _, en := range e.entries() {
		out = append(out, *en.copyOut())
	}
	slices.SortFunc(out, func(a, b problem.Problem) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Group, b.Group))
	})
	return out
}

// Now returns the time of the latest call.
func (e *Engine) Now() event.Moment { return e.now }

// Conditions returns the state of every registered condition, sorted by type.
// LastTransition is zero until the first call with a time.
func (e *Engine) Conditions() []problem.Condition {
	out := make([]problem.Condition, len(e.conditions))
	for i, c := range e.conditions {
		out[i] = c.current
	}
	return out
}

// start begins a call: it drops the monotonic clock reading (events have
// none), keeps time from running backwards, and handles deadlines.
func (e *Engine) start(now event.Moment) event.Moment {
	now = event.Moment{Wall: now.Wall.Round(0), Boot: max(now.Boot, e.now.Boot)}
	e.now = now
	clear(e.out)
	e.out = e.out[:0]
	for len(e.deadlines) > 0 && e.deadlines[0].due <= now.Boot {
		at := e.deadlines[0].due
		e.mutesEnd(at) // problems due after the end of a mute are announced
		e.clearing = true
		for len(e.deadlines) > 0 && e.deadlines[0].due == at {
			en := heap.Pop(&e.deadlines).(*entry)
			switch due, ok := e.deadline(en); {
			case !ok:
			case due > en.due:
				// Requeue it, even if the corrected time is due too: deadlines are handled in the
				// order of their times, even if the heap is stale.
				en.due = due
				heap.Push(&e.deadlines, en)
			default:
				e.expire(en, e.moment(due))
			}
		}
		e.clearedAll()
	}
	e.mutesEnd(now.Boot)
	e.lossEnds(now.Boot)
	e.absent(now.Boot)
	return now
}

// finish ends a call: it derives the conditions from the problems.
func (e *Engine) finish(now event.Moment) []problem.Transition {
	for _, c := range e.conditions {
		if c.dirty || c.current.LastTransition.IsZero() {
			e.refresh(c, now.Wall)
		}
	}
	return e.out
}

// test evaluates a rule's expression for the current event. An expression
// that fails doesn't match and is counted as an error.
func (e *Engine) test(r *ruleState, x *expr) bool {
	if x == nil {
		return true
	}
	e.evaluations++
	ok, err := x.test(e.act)
	if err != nil {
		r.errors++
		return false
	}
	return ok
}

// Stats holds the engine's counts since its creation. The maps contain only
// rules with a count above 0 and belong to the caller.
type Stats struct {
	Evaluations uint64            `json:"evaluations"`          // of when and clearWhen
	Duplicates  uint64            `json:"duplicates"`           // kernel records seen before and ignored
	EvalErrors  map[string]uint64 `json:"evalErrors,omitempty"` // by rule: expressions that failed (they don't match; in a message they show as ?)
	Overflow    map[string]uint64 `json:"overflow,omitempty"`   // by rule: events counted in the overflow group
	Limited     map[string]uint64 `json:"limited,omitempty"`    // by rule: events beyond its RateLimit
	// Sources is how many state events were dropped because of [MaxStems]; Source is the stem
	// of the latest.
	Sources uint64 `json:"sources,omitempty"`
	Source  string `json:"source,omitempty"`
	// Log lines: how often each pattern matched, by the names in [RuleSet.PatternSet], and the
	// events that no pattern matched (sent for the patterns of other rules, or cut).
	Matches   map[string]uint64 `json:"matches,omitempty"`
	Unmatched uint64            `json:"unmatched,omitempty"`
}

// Stats returns the counts so far.
func (e *Engine) Stats() Stats {
	s := Stats{Evaluations: e.evaluations, Duplicates: e.duplicates, EvalErrors: make(map[string]uint64), Overflow: make(map[string]uint64), Limited: make(map[string]uint64), Matches: e.logs.counts(), Unmatched: e.logs.unmatched, Sources: e.roomless, Source: e.lastRoomless}
	for _, r := range e.rules {
		if r.errors > 0 {
			s.EvalErrors[r.Name] = r.errors
		}
		if r.overflow > 0 {
			s.Overflow[r.Name] = r.overflow
		}
		if r.limited > 0 {
			s.Limited[r.Name] = r.limited
		}
	}
	return s
}

// ObserveLasting applies an event that was observed before and still holds, such as a filesystem
// that refuses writes, to rules that were not in force at that time. It does not count in a problem
// that such a rule already has. matched returns the rules in which it began or counted in a
// problem. See [Engine.Observe] for the rest.
func (e *Engine) ObserveLasting(ev *event.Event, rules []string, now event.Moment) (matched []string, _ []problem.Transition) {
	now = e.start(now)
	at := occurredAt(ev, now)
	e.act.ev = ev
	if of := e.byKind[ev.Kind]; of != nil {
		for _, r := range of.match {
			if !slices.Contains(rules, r.Name) || !r.reads(ev) || !e.test(r, r.when) {
				continue
			}
			if en := e.countsIn(r, ev); en == nil || en.p.State == problem.Resolved {
				e.occur(r, ev, at, now)
				matched = append(matched, r.Name)
			}
		}
	}
	e.act.ev = nil
	return matched, e.finish(now)
}
