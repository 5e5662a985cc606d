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
	// forever bounds periods: those between any two dates overflow a Duration.
	forever = 100 * 365 * 24 * time.Hour
	// keepResolved is how long a resolved problem stays visible: a person who
	// was called comes within a quarter of an hour.
	keepResolved = 15 * time.Minute
	// sameReporting is how far apart two sources report one fault. The kernel
	// log comes within a second; a log file read by polling within some.
	sameReporting = 10 * time.Second
	// confirmWithin is the time in which a level signal that was restored, or
	// whose source was away, must be seen again: khungtaskd looks every 120 s,
	// so twice that and some.
	confirmWithin = 5 * time.Minute
	// evidenceSpacing: of a problem that only counts up, one event a second is
	// kept; a flood's records are alike, and copying each would be the cost.
	evidenceSpacing = time.Second
	// maxEvidence is the first event and the latest three, or two and one of another
	// source.
	maxEvidence = 4
)

// ruleState is a rule at work.
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

// series is the problems of one fault and condition, by group: what two
// sources report one fault meets here.
type series struct {
	rules      []*Rule
	entries    map[string]*entry
	firing     int
	resolved   int
	dependents []*dependency // by which this one's problems hide others
	condition  *conditionState
}

// entry is one problem with the engine's own bookkeeping. The problem's times are the wall
// clock's; the engine's own are since boot.
type entry struct {
	p        problem.Problem
	rule     *ruleState // whose event made it; stays so for the episode
	reporter *ruleState // whose event was counted last
	progress
	window window
	folded folded // of the overflow group

	due   time.Duration // in the heap
	index int           // in the heap; -1: not in it
}

// progress is what is saved of an entry as it is.
type progress struct {
	ReportedAt time.Duration `json:"toldAt,omitempty"`
	Bursts     []burst       `json:"bursts,omitempty"`    // of late, the oldest first
	Lasting    bool          `json:"lasting,omitempty"`   // a level signal that has not ended is among what was reported
	Came       time.Duration `json:"came,omitempty"`      // Pending with a threshold: when its latest event was read
	LastSeen   time.Duration `json:"seen"`                // of the problem's LastSeen
	Since      time.Duration `json:"entered"`             // of the problem's Since
	Kept       time.Duration `json:"kept,omitempty"`      // latest event in evidence
	FireAt     time.Duration `json:"fireAt,omitempty"`    // Pending with "for": when it fires
	QuietFrom  time.Duration `json:"quietFrom,omitempty"` // quiet counts from here at the earliest: restored, or the source came back
	Confirm    bool          `json:"confirm,omitempty"`   // a level signal nobody has confirmed since
	ConfirmBy  time.Duration `json:"confirmBy,omitempty"` // zero while the source is still away
}

// begin starts an episode.
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

// seen notes that the problem was reported: it lasts. That a level signal does can only be said by
// its own source: a line may be read long after it was written.
func (en *entry) seen(level bool, at event.Moment) {
	if at.Boot > en.LastSeen {
		en.LastSeen, en.p.LastSeen = at.Boot, at.Wall
	}
	if level || !en.Lasting {
		en.Confirm, en.ConfirmBy = false, 0
	}
}

// signal returns the rule whose level signal lasts in the problem, nil where there is none. It may
// have joined after another rule's event had begun the problem.
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

// signalEnds reports whether the problem ends with its level signal, also where nobody sees that.
func (en *entry) signalEnds() bool {
	s := en.signal()
	return s != nil && !s.Latched && !en.rule.Latched
}

// saw counts an event that matches the rule, for as many as are new.
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

// keep adds an event to the evidence. Where there is no room the oldest but the
// first goes, and of two sources not the only one of its kind.
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

// copyOut returns the problem as handed to others: events are shared, since
// they are immutable, lists are not.
func (en *entry) copyOut() *problem.Problem {
	p := en.p
	p.Evidence = slices.Clone(p.Evidence)
	return &p
}

// place finds or makes the entry of a group; a new one has no state. Where
// there is no room it takes the place of the resolved problem that is quiet
// for longest, or else it is the overflow group.
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

// groups returns how many problems take room; the overflow group is extra.
func (s *series) groups() int {
	if s.entries[OverflowGroup] != nil {
		return len(s.entries) - 1
	}
	return len(s.entries)
}

// evict drops the oldest resolved problem.
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

// older orders by last event, then by group so that replay is exact.
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
