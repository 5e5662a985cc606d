package events

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

const (
	// maxRules bounds the rules that are counted separately: as many as a rule set may have.
	maxRules = 1000
	// otherRule is used for all further rules. No rule can have this name.
	otherRule = "*"
	// reserve is the room, in addition to max, for series that collect occurrences of series that
	// have no room: one for each rule, and one for each status of a condition.
	reserve = 500
	// conditionPrefix distinguishes a condition type from the names of rules.
	conditionPrefix = "condition/"
)

// table has all series and counters: it is a fold over the journal's entries. The same entries give the
// same table, regardless of what was sent, because series are removed only when the table is saved.
type table struct {
	// Bounds, which tests change.
	max    int           // number of series, each up to 4 KiB of memory
	burst  int           // series that a rule may begin at once
	refill time.Duration // time after which it may begin one more
	idle   time.Duration // Config.Idle

	live       map[key]*series
	list       []*series // by Order
	own        int       // number of those that count towards max
	rules      map[string]*RuleStats
	conditions map[string]problem.Status
	order      uint64
	lost       uint64 // journal entries
}

func newTable() *table {
	return &table{
		max: 1000, burst: 20, refill: 30 * time.Second, idle: DefaultIdle,
		live: map[key]*series{}, rules: map[string]*RuleStats{}, conditions: map[string]problem.Status{},
	}
}

// reporting is one occurrence in the form in which an Event reports it.
type reporting struct {
	item        *Item
	severity    problem.Severity
	reason      string
	message     string
	about       string
	object      string
	first, last time.Time
	unreported  bool
	doc         string
	event       *event.Event // nil: only the message is known
	times       uint64
	id          string // of a permanent problem; else empty
}

func (t *table) fold(it *Item) {
	for i := range it.Transitions {
		switch tr := &it.Transitions[i]; {
		case tr.Problem != nil && announced(tr.Problem):
			t.problem(it, tr)
		case tr.Condition != nil:
			t.condition(it, tr.Condition)
		}
	}
}

// announced reports whether a problem is reported by an Event. Its end is not: the end shows in
// its condition.
func announced(p *problem.Problem) bool {
	return p.State == problem.Firing && p.MutedUntil.IsZero() && p.SuppressedBy == ""
}

func (t *table) problem(it *Item, tr *problem.Transition) {
	p, times := tr.Problem, tr.Occurrences()
	name, r := t.rule(p.Rule)
	if tr.Again && t.shown(name, p) {
		return
	}
	report := reporting{
		item: it, severity: p.Severity, reason: p.Reason, message: p.Message,
		object: part(p.Group), first: p.FirstSeen, last: p.LastSeen, doc: p.Doc, event: eventOf(it, p), times: times, id: idOf(p),
	}
	if p.Condition == "" {
		report.first = p.LastSeen // each occurrence is reported separately
	}
	if p.Group != "" { // otherwise the problem concerns the whole node, wherever it occurred last
		report.about = p.Pod
	}
	if report.about != "" {
		report.object = report.about
		r.OnPods += times
		if s := t.count(r, key{name, report.about, ""}, &report); s == nil {
			report.unreported = true
			count(&r.Unreported, AstrayBudget, times)
		} else if s.Astray != "" {
			report.unreported = true
		}
	}
	if t.saidByCondition(it, p) {
		return
	}
	r.Happened += times
	k := key{rule: name}
	if report.about == "" && p.Group != "" {
		k.part = report.object
	}
	if k.part != "" && t.count(r, k, &report) != nil {
		return
	}
	k.part = ""
	if t.count(r, k, &report) == nil {
		count(&r.Dropped, AstrayRoom, times)
	}
}

// idOf identifies a permanent problem from its beginning to its end; empty: a temporary one.
func idOf(p *problem.Problem) string {
	if p.Condition == "" {
		return ""
	}
	return part(p.Rule + "\x00" + p.Group + "\x00" + strconv.FormatInt(p.FirstSeen.UnixNano(), 10))
}

// shown reports whether a series already reports a problem.
func (t *table) shown(name string, p *problem.Problem) bool {
	id := idOf(p)
	return slices.ContainsFunc([]key{
		{name, p.Pod, ""}, {name, "", part(p.Group)}, {name, "", ""}, {conditionPrefix + p.Condition, "", string(problem.True)},
	}, func(k key) bool {
		s := t.live[k]
		return s != nil && slices.Contains(s.Shows, id)
	})
}

// eventOf returns the entry's event if it is the problem's latest. Other problems may have
// changed in the same step because of a timer.
func eventOf(it *Item, p *problem.Problem) *event.Event {
	if it.Event == nil || !p.LastSeen.Equal(it.Event.Time) && !p.LastSeen.Equal(it.Now) {
		return nil
	}
	return it.Event
}

// saidByCondition reports whether the problem's own Event on the Node would be redundant, because
// an Event of the same entry reports that a condition is True because of the problem.
func (t *table) saidByCondition(it *Item, p *problem.Problem) bool {
	if p.Condition == "" || t.conditions[p.Condition] == problem.True {
		return false
	}
	for i := range it.Transitions {
		c := it.Transitions[i].Condition
		if c != nil && c.Type == p.Condition && c.Status == problem.True && c.Reason == p.Reason && strings.HasPrefix(c.Message, p.Message) {
			return true
		}
	}
	return false
}

// condition reports a changed status. The first status of a condition is reported only if it is
// True: a node that joins the cluster need not report that it is healthy. Unknown before the
// sources have started is never reported.
func (t *table) condition(it *Item, c *problem.Condition) {
	was, known := t.conditions[c.Type]
	if was == c.Status || !known && len(t.conditions) == maxRules || c.Status == problem.Unknown && c.Reason == problem.ReasonSourceNotStarted {
		return
	}
	t.conditions[c.Type] = c.Status
	if !known && c.Status != problem.True {
		return
	}
	severity := problem.Warning
	if c.Status == problem.False {
		severity = problem.Info
	}
	name, r := t.rule(conditionPrefix + c.Type)
	r.Happened++
	report := reporting{
		item: it, severity: severity, reason: c.Reason, object: c.Type,
		message: c.Type + " is now " + string(c.Status) + ": " + c.Message,
		first:   c.LastTransition, last: c.LastTransition, times: 1,
	}
	for i := range it.Transitions {
		if p := it.Transitions[i].Problem; p != nil && c.Status == problem.True && p.Condition == c.Type && p.Reason == c.Reason && announced(p) {
			report.doc, report.event, report.id = p.Doc, eventOf(it, p), idOf(p)
		}
	}
	if t.count(r, key{rule: name, part: string(c.Status)}, &report) == nil {
		count(&r.Dropped, AstrayRoom, 1)
	}
}

// rule returns the counters for a name, and the name under which they are stored.
func (t *table) rule(name string) (string, *RuleStats) {
	if r := t.rules[name]; r != nil {
		return name, r
	}
	if len(t.rules) >= maxRules {
		name = otherRule
		if r := t.rules[name]; r != nil {
			return name, r
		}
	}
	r := &RuleStats{}
	t.rules[name] = r
	return name, r
}

// count counts occurrences in their series, and begins the series if necessary. It returns nil if
// the series must not begin.
func (t *table) count(r *RuleStats, k key, o *reporting) *series {
	s := t.live[k]
	if s == nil {
		if s = t.begin(r, k, o); s == nil {
			return nil
		}
	}
	s.Severity, s.Reason, s.Message, s.About = o.severity, reason(o.reason), display.Bounded(o.message, maxMessage), o.about
	s.Doc, s.Event = o.doc, o.event
	s.Mixed = s.Mixed || s.Object != o.object
	if s.Last.Before(o.last) || s.Last.After(o.item.Now) { // later than now: the clock was set back
		s.Last = o.last
	}
	s.Heard = o.item.Now
	if o.id != "" && !slices.Contains(s.Shows, o.id) {
		s.Shows = append(s.Shows[max(0, len(s.Shows)-maxShown+1):], o.id)
	}
	s.Count += o.times
	if s.Astray != "" {
		t.astray(s, o.times)
	}
	if o.unreported && s.Pod == "" {
		s.Unreported += o.times
	}
	return s
}

func (t *table) begin(r *RuleStats, k key, o *reporting) *series {
	switch free := k.free(); {
	case free && len(t.list)-t.own >= reserve:
		return nil
	case !free && (t.own >= t.max || !r.admit(o.item.Now, t.burst, t.refill)):
		return nil
	}
	first := o.first
	if first.IsZero() {
		first = o.item.Now
	}
	t.order++
	s := &series{
		Rule: k.rule, Pod: k.pod, Part: k.part, Order: t.order, Object: o.object,
		First: first.Round(0), Last: first.Round(0),
	}
	if o.item.Now.Sub(first).Abs() >= t.idle {
		s.Began = o.item.Now.Round(0)
	}
	if o.item.Kernel {
		s.kernel = o.last
	}
	t.add(s)
	return s
}

func (t *table) add(s *series) {
	t.live[s.key()] = s
	t.list = append(t.list, s)
	if !s.key().free() {
		t.own++
	}
}

// free reports whether the series counts towards the reserve instead of max.
func (k key) free() bool {
	return strings.HasPrefix(k.rule, conditionPrefix) || k.pod == "" && k.part == ""
}

// admit takes one series from the rule's budget. The budget is a token bucket, stored as the time
// at which it will be full again.
func (r *RuleStats) admit(now time.Time, burst int, refill time.Duration) bool {
	free := r.Free
	// More than a whole bucket ahead: the clock was set back.
	if free.Before(now) || free.Sub(now) > time.Duration(burst)*refill {
		free = now
	}
	if free.Sub(now) > time.Duration(burst-1)*refill {
		return false
	}
	r.Free = free.Add(refill).Round(0)
	return true
}

// lose gives up a series: counts not sent yet, and future occurrences.
func (t *table) lose(s *series, why string) {
	s.Astray = why
	t.astray(s, s.Count-s.Acked)
	if s.Pod == "" {
		return
	}
	if onNode := t.live[key{rule: s.Rule}]; onNode != nil {
		onNode.Unreported += min(s.Count-s.Acked, onNode.Count-onNode.Unreported)
	}
}

// astray counts n occurrences that a given-up series would have reported.
func (t *table) astray(s *series, n uint64) {
	r := t.rules[s.Rule]
	if s.Pod != "" {
		count(&r.Unreported, s.Astray, n)
	} else {
		count(&r.Dropped, s.Astray, n)
	}
}

func count(m *map[string]uint64, why string, n uint64) {
	if *m == nil {
		*m = map[string]uint64{}
	}
	(*m)[why] += n
}
