package detector

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// Bounds and times of the state machine.
const (
	// forever bounds periods, because the time between two arbitrary dates can overflow a Duration.
	forever = 100 * 365 * 24 * time.Hour
	// keepResolved is how long a resolved problem stays visible: someone on call
	// looks within a quarter of an hour.
	keepResolved = 15 * time.Minute
	// sameReporting is how far apart two sources may report the same fault. The kernel
	// log arrives within a second, a polled log file within a few.
	sameReporting = 10 * time.Second
	// confirmWithin is the time within which a level signal must be reported again after it was
	// restored or its source was down. It is a little more than twice the 120 s between
	// khungtaskd's checks.
	confirmWithin = 5 * time.Minute
	// evidenceSpacing limits the evidence of a repeating problem to one event a second:
	// records of a flood are alike, and copying each would be expensive.
	evidenceSpacing = time.Second
	// maxEvidence bounds the evidence: the first event and the latest three, or the latest
	// two and one of another source.
	maxEvidence = 4
)

// ruleState is a rule with its runtime state.
type ruleState struct {
	*Rule
	series   *series
	causes   []*dependency
	absence  absence
	errors   uint64 // evaluations that failed
	overflow uint64 // events folded into the overflow group
	limited  uint64 // events beyond its RateLimit
	budgets
}

// series holds the problems of one fault and condition, by group. Rules that
// report the same fault from different sources share it.
type series struct {
	rules      []*Rule
	entries    map[string]*entry
	firing     int
	resolved   int
	dependents []*dependency // problems that this series hides
	condition  *conditionState
}

// entry is one problem with the engine's own bookkeeping. The problem's times are the wall
// clock's; the engine's own are since boot.
type entry struct {
	p        problem.Problem
	rule     *ruleState // rule whose event began the episode
	reporter *ruleState // rule whose event was counted last
	progress
	window window
	folded folded // of the overflow group

	due   time.Duration // deadline by which the heap sorts
	index int           // index in the heap; -1: not in it
}

// progress holds the fields of an entry that snapshots save unchanged.
type progress struct {
	ReportedAt time.Duration `json:"toldAt,omitempty"`
	Again      time.Duration `json:"again,omitempty"`     // ReportedAt when the level signals were last unwatched: a source reports them again
	Bursts     []burst       `json:"bursts,omitempty"`    // recent ones, oldest first
	Lasting    bool          `json:"lasting,omitempty"`   // a level signal was reported and has not ended
	Came       time.Duration `json:"came,omitempty"`      // Pending with a threshold: when its latest event was read
	LastSeen   time.Duration `json:"seen"`                // boot time of the problem's LastSeen
	Since      time.Duration `json:"entered"`             // boot time of the problem's Since
	Kept       time.Duration `json:"kept,omitempty"`      // latest event in evidence
	FireAt     time.Duration `json:"fireAt,omitempty"`    // Pending with "for": when it fires
	QuietFrom  time.Duration `json:"quietFrom,omitempty"` // earliest start of the quiet time: the restart, or when the source came back
	Confirm    bool          `json:"confirm,omitempty"`   // the level signal must be confirmed
	ConfirmBy  time.Duration `json:"confirmBy,omitempty"` // zero while the source is still down
}

// begin starts a new episode of a problem.
func (en *entry) begin(r *ruleState, at event.Moment) {
	group := en.p.Group
	evidence := en.p.Evidence[:0]
	*en = entry{rule: r, window: en.window, progress: progress{Bursts: en.Bursts[:0], LastSeen: at.Boot}, due: en.due, index: en.index}
	en.window.reset()
	en.p = problem.Problem{
		Rule: r.Name, Fault: r.Fault, Group: group, Condition: r.Condition, Reason: r.Reason,
		Severity: r.Severity, Doc: r.Doc, FirstSeen: at.Wall, LastSeen: at.Wall, Evidence: evidence,
	}
	en.become(problem.Pending, at)
}

func (en *entry) become(s problem.State, at event.Moment) {
	en.p.State, en.p.Since, en.Since = s, at.Wall, at.Boot
}

// seen notes that the problem was reported and so continues. Only the signal's own source can
// confirm a level signal, because a log line may be read long after it was written.
func (en *entry) seen(level bool, at event.Moment) {
	if at.Boot > en.LastSeen {
		en.LastSeen, en.p.LastSeen = at.Boot, at.Wall
	}
	if level || !en.Lasting {
		en.Confirm, en.ConfirmBy = false, 0
	}
}

// signal returns the rule whose level signal keeps the problem firing, or nil. Another rule's event
// may have begun the problem earlier.
func (en *entry) signal() (signal *Rule) {
	if en.rule.level {
		return en.rule.Rule
	}
	if !en.Lasting {
		return nil
	}
	for _, r := range en.rule.series.rules {
		if r.level && (signal == nil || r.ClearAfter == 0) {
			signal = r
		}
	}
	return signal
}

// signalEnds reports whether the problem ends with its level signal, even if the end is missed.
func (en *entry) signalEnds() bool {
	s := en.signal()
	return s != nil && !s.Latched && !en.rule.Latched
}

// saw counts an event that matches the rule as fresh new occurrences.
func (en *entry) saw(r *ruleState, ev *event.Event, at event.Moment, fresh uint64) {
	en.p.Count += fresh
	en.seen(r.level, at)
	en.reporter, en.ReportedAt = r, at.Boot
	en.counted(r, at.Boot, ev.Occurrences())
	en.Lasting = en.Lasting || r.level
	if !r.Temporary() && en.Kept != 0 && (at.Boot-en.Kept).Abs() < evidenceSpacing {
		return
	}
	en.Kept = at.Boot
	en.keep(ev)
}

// keep adds an event to the evidence. If the evidence is full, it drops the oldest event other than
// the first, but never the only event of another kind.
func (en *entry) keep(ev *event.Event) {
	c := ev.Clone()
	if len(en.p.Evidence) < maxEvidence {
		en.p.Evidence = append(en.p.Evidence, c)
		return
	}
	out := 1
	for i := 1; i < maxEvidence; i++ {
		if k := en.p.Evidence[i].Kind; k == c.Kind || k == en.p.Evidence[0].Kind {
			out = i
			break
		}
	}
	copy(en.p.Evidence[out:], en.p.Evidence[out+1:])
	en.p.Evidence[maxEvidence-1] = c
}

// copyOut returns a copy of the problem for callers. It copies lists but shares the
// events, which are immutable.
func (en *entry) copyOut() *problem.Problem {
	p := en.p
	p.Evidence = slices.Clone(p.Evidence)
	return &p
}

// place finds or makes the entry of a group; a new entry has no state. If the series is full it
// evicts the oldest resolved problem, or else returns the overflow group.
func (e *Engine) place(r *ruleState, group []byte, now event.Moment) *entry {
	s := r.series
	if en := s.entries[string(group)]; en != nil {
		return en
	}
	for s.groups() >= r.MaxGroups {
		if e.evict(s) {
			continue
		}
		r.overflow++
		if en := s.entries[OverflowGroup]; en != nil {
			return en
		}
		group = []byte(OverflowGroup)
		break
	}
	if id, ok := s.folded(group); ok {
		e.unfold(s, id, now)
	}
	en := &entry{rule: r, index: -1}
	en.p.Group = string(group)
	s.entries[en.p.Group] = en
	return en
}

// groups returns how many problems count towards MaxGroups; the overflow group does not.
func (s *series) groups() int {
	if s.entries[OverflowGroup] != nil {
		return len(s.entries) - 1
	}
	return len(s.entries)
}

// evict drops the oldest resolved problem. It returns false if there is none.
func (e *Engine) evict(s *series) bool {
	if s.resolved == 0 {
		return false
	}
	var oldest *entry
	for _, en := range s.entries {
		if en.p.State == problem.Resolved && (oldest == nil || older(en, oldest)) {
			oldest = en
		}
	}
	e.forget(oldest)
	return true
}

// older orders by last event, then by group so that a replay is exact.
func older(a, b *entry) bool {
	return cmp.Or(cmp.Compare(a.LastSeen, b.LastSeen), cmp.Compare(a.p.Group, b.p.Group)) < 0
}

// forget drops a problem that is not firing.
func (e *Engine) forget(en *entry) {
	e.disarm(en)
	s := en.rule.series
	if en.p.State == problem.Resolved {
		s.resolved--
	}
	delete(s.entries, en.p.Group)
}

// window holds the latest matching events of a threshold, oldest first. It holds
// at most Threshold.Count events, so the rule bounds its memory.
type window struct{ marks []mark }

// mark is one counted event.
type mark struct {
	At time.Duration `json:"at"`           // of the event, since boot
	ID uint64        `json:"id,omitempty"` // hash of the distinct field; 0: every event counts
}

// add counts an event and reports whether the threshold is reached, that is, Count
// events lie within its period. Events may come out of order.
func (w *window) add(t Threshold, m mark) bool {
	if m.ID != 0 {
		// A value seen again counts once, at its latest time.
		if i := slices.IndexFunc(w.marks, func(o mark) bool { return o.ID == m.ID }); i >= 0 {
			m.At = max(m.At, w.marks[i].At)
			w.marks = slices.Delete(w.marks, i, i+1)
		}
	}
	if surplus := len(w.marks) - t.Count; surplus > 0 { // a reload lowered the count
		w.marks = slices.Delete(w.marks, 0, surplus)
	}
	i := len(w.marks)
	for i > 0 && w.marks[i-1].At > m.At {
		i--
	}
	if len(w.marks) < t.Count {
		w.marks = slices.Insert(w.marks, i, m)
	} else if i > 0 {
		// Full: drop the oldest.
		copy(w.marks, w.marks[1:i])
		w.marks[i-1] = m
	}
	n := len(w.marks)
	return n >= t.Count && w.marks[n-1].At-w.marks[0].At <= t.Within
}

func (w *window) reset() { w.marks = w.marks[:0] }
