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
	Rules      map[string]RuleStats      `json:"rules,omitempty"`
	Conditions map[string]problem.Status `json:"conditions,omitempty"`
}

// state returns a copy of the table without the series that are over, and those series.
func (t *table) state(node string, seq uint64, now time.Time, idle time.Duration) (st state, over []*series) {
	st = state{Version: stateVersion, Node: node, Seq: seq, Order: t.order, Lost: t.lost, Conditions: maps.Clone(t.conditions), Rules: t.counters()}
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
	return st, over
}

// counters returns a copy of the rules' counters.
func (t *table) counters() map[string]RuleStats {
	out := make(map[string]RuleStats, len(t.rules))
	for name, r := range t.rules {
		c := *r
		c.Unreported, c.Dropped = maps.Clone(r.Unreported), maps.Clone(r.Dropped)
		out[name] = c
	}
	return out
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
		if !s.key().free() {
			t.own--
		}
	}
	t.list = slices.DeleteFunc(t.list, func(s *series) bool { return t.live[s.key()] != s })
}

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

// saveFarBehind is how many entries the saved state may be behind before it is saved even without a
// change: the journal must not drop entries that a restart needs.
const saveFarBehind = 4096

// endWithin is how long entries wait for a save that ends series. A disk that takes longer is
// hanging, and the series continue.
const endWithin = time.Second

type saveResult struct {
	seq  uint64
	at   time.Time // the time of the saved state
	over []*series // the series left out of it
	err  error
}

// needsSave reports whether the state has changed, or a series is over.
func (k *Sink) needsSave(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.change || k.seq-k.saved > saveFarBehind ||
		slices.ContainsFunc(k.table.list, func(s *series) bool { return s.over(now, k.cfg.Idle) })
}

// snapshot returns the state as of the latest folded entry without the series that are over, and
// those series.
func (k *Sink) snapshot(now time.Time) (state, []*series) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.change = false
	return k.table.state(k.cfg.Node, k.seq, now, k.cfg.Idle)
}

// write writes a state to the disk.
func (k *Sink) write(st state, over []*series, at time.Time) saveResult {
	err := k.file.Save(&st)
	if err == nil {
		k.cfg.Fault(StageSaved)
	}
	return saveResult{seq: st.Seq, at: at, over: over, err: err}
}

// startSave saves the current state, and returns the channel for the result. New entries don't wait
// for the disk, unless a series ends: it ends only when the file without it is written, and no
// entry may be folded meanwhile, so that an entry counts for the same series after a kill. In that
// case startSave waits, and returns nil if the save has ended in time.
func (k *Sink) startSave(now time.Time) <-chan saveResult {
	st, over := k.snapshot(now)
	result := make(chan saveResult, 1)
	go func() { result <- k.write(st, over, now) }()
	if len(over) == 0 {
		return result
	}
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case r := <-result:
		k.saveEnded(r)
		return nil
	case <-timer.C:
		return result
	}
}

// saveEnded handles the result of a save. It reports whether the file lacks a series that has
// gone on meanwhile: then the next save is due at once.
func (k *Sink) saveEnded(r saveResult) (again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.err != nil {
		k.change = true
		k.cfg.Log.Error("can't save the state of Events", "error", r.err)
		return false
	}
	k.saved = r.seq
	gone := slices.DeleteFunc(slices.Clone(r.over), func(s *series) bool { return !s.over(r.at, k.cfg.Idle) })
	k.table.remove(gone)
	return len(gone) < len(r.over)
}

// save saves the state while no entries are folded.
func (k *Sink) save(now time.Time) error {
	st, over := k.snapshot(now)
	r := k.write(st, over, now)
	k.saveEnded(r)
	return r.err
}
