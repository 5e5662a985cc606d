package events

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// StateFile is the name of the sink's state file in Config.Dir.
const StateFile = "events.json"

// stateVersion changes when older versions of Kernosis must no longer read the file.
const stateVersion = 1

// state is a table as of a journal entry.
type state struct {
	Version    int                       `json:"version"`
	Node       string                    `json:"node"`
	Seq        uint64                    `json:"seq"` // of the entry
	Order      uint64                    `json:"order"`
	Lost       uint64                    `json:"lost,omitempty"`
	Series     []series                  `json:"series,omitempty"`
	Rules      map[string]rule           `json:"rules,omitempty"`
	Conditions map[string]problem.Status `json:"conditions,omitempty"`
}

// state returns a copy of the table without the series that are over, and those series.
func (t *table) state(node string, seq uint64, now time.Time, idle time.Duration) (st state, over []*series) {
	st = state{Version: stateVersion, Node: node, Seq: seq, Order: t.order, Lost: t.lost, Conditions: maps.Clone(t.conditions), Rules: make(map[string]rule, len(t.rules))}
	for _, s := range t.list {
		if s.over(now, idle) {
			over = append(over, s)
			continue
		}
		c := *s
		c.Shows = slices.Clone(s.Shows)
		if s.Where != nil {
			where := *s.Where
			c.Where = &where
		}
		if !s.dirty() {
			c.Event = nil // the API server already has its facts
		}
		st.Series = append(st.Series, c)
	}
	for name, r := range t.rules {
		c := *r
		c.Unreported, c.Dropped = maps.Clone(r.Unreported), maps.Clone(r.Dropped)
		st.Rules[name] = c
	}
	return st, over
}

// over reports whether a series is over, so that the next occurrence begins a new one. If the clock
// was set back, the series was heard of later than now.
func (s *series) over(now time.Time, idle time.Duration) bool {
	return !s.dirty() && !s.sending && now.Sub(s.Heard).Abs() >= idle
}

// remove removes series that are no longer in the saved state.
func (t *table) remove(over []*series) {
	for _, s := range over {
		delete(t.live, s.key())
		if !s.free() {
			t.own--
		}
	}
	t.list = slices.DeleteFunc(t.list, func(s *series) bool { return t.live[s.key()] != s })
}

// load restores the state that an earlier process saved.
func (t *table) load(st *state) error {
	t.order, t.lost = st.Order, st.Lost
	for name, r := range st.Rules {
		t.rules[name] = &r
	}
	maps.Copy(t.conditions, st.Conditions)
	slices.SortFunc(st.Series, func(a, b series) int { return cmp.Compare(a.Order, b.Order) })
	for i := range st.Series {
		s := &st.Series[i]
		if t.live[s.key()] != nil || t.rules[s.Rule] == nil || s.Acked > s.Count || s.Pod != "" && s.Created && s.Where == nil {
			return errors.New("contradictory series")
		}
		t.add(s)
	}
	return nil
}
