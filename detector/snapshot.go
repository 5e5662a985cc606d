package detector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// snapshotVersion changes when other versions of Kernosis must no longer read the format. The
// engine is then rebuilt from the journal.
const snapshotVersion = 2

// snapshot is the JSON form of an engine's state.
type snapshot struct {
	Version    int                 `json:"version"`
	Now        event.Moment        `json:"now"`
	Problems   []savedProblem      `json:"problems,omitempty"`
	Conditions []problem.Condition `json:"conditions,omitempty"`
	Seen       []byte              `json:"seen,omitempty"`
	Mutes      []mute              `json:"mutes,omitempty"`
	Stems      []savedStem         `json:"stems,omitempty"`
	Absences   map[string]absence  `json:"absences,omitempty"` // by rule; has all rules with absentFor
	Withheld   []*withheld         `json:"withheld,omitempty"`
	Lost       map[string]uint64   `json:"lost,omitempty"` // to rate limits, by source
	LostAt     time.Duration       `json:"lostAt,omitempty"`
}

type savedStem struct {
	Name string `json:"name"`
	stemState
}

// savedProblem holds a problem (its times are wall clock times) and the engine's own times (since
// boot).
type savedProblem struct {
	problem.Problem
	progress
	GroupBy   []string `json:"groupBy,omitempty"` // the rule's, to check whether it is still the same
	Window    []mark   `json:"window,omitempty"`
	Reporter  string   `json:"teller,omitempty"`
	Folded    []byte   `json:"folded,omitempty"` // of the overflow group
	Uncounted bool     `json:"uncounted,omitempty"`
}

// Snapshot returns the engine's complete state as JSON, for [Engine.Restore] or
// [Engine.Resume] after a restart within the same boot. After a reboot most of it is
// no longer true, so store the boot ID with it.
func (e *Engine) Snapshot() ([]byte, error) {
	s := snapshot{Version: snapshotVersion, Now: e.now, Conditions: e.Conditions(), Seen: e.recent.bytes()}
	for _, m := range e.mutes.list {
		s.Mutes = append(s.Mutes, *m)
	}
	for _, en := range e.entries() {
		p := savedProblem{Problem: *en.copyOut(), progress: en.progress, GroupBy: en.rule.GroupBy, Window: en.window.marks,
			Folded: en.folded.save(), Uncounted: en.folded.uncounted}
		if en.reporter != nil {
			p.Reporter = en.reporter.Name
		}
		s.Problems = append(s.Problems, p)
	}
	for _, r := range e.rules {
		if r.awaits() {
			if s.Absences == nil {
				s.Absences = make(map[string]absence)
			}
			s.Absences[r.Name] = r.absence
		}
	}
	s.Withheld, s.Lost, s.LostAt = e.limits.queue, e.limits.lost, e.limits.lostAt
	for _, name := range slices.Sorted(maps.Keys(e.stems)) {
		s.Stems = append(s.Stems, savedStem{name, *e.stems[name]})
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return b, nil
}

// Restore restores the state that [Engine.Snapshot] saved, at the time of the
// restart: it calls [Engine.Resume] and [Engine.Restarted].
func (e *Engine) Restore(data []byte, now event.Moment) error {
	if err := e.Resume(data, now); err != nil {
		return err
	}
	e.Restarted(now)
	return nil
}

// Resume restores the state that [Engine.Snapshot] saved. Call it once, before the first Observe.
// It drops problems whose rules were removed or changed, and new rules may hide other problems. No
// transition reports these changes, or the restored problems, which were reported before: compare
// [ReportedIn] with the engine's problems after [Engine.Restarted]. On an error the engine is
// unchanged. now is the time of the restart, in the same boot.
//
// A caller that keeps a journal then replays the entries after the snapshot, with
// their times, and finally calls [Engine.Restarted].
func (e *Engine) Resume(data []byte, now event.Moment) error {
	s, err := readSnapshot(data)
	if err != nil {
		return err
	}
	if s.Now.Boot > now.Boot {
		return fmt.Errorf("restore: saved %s after boot, which is in the future: it is from another boot", s.Now.Boot)
	}
	e.now = event.Moment{Wall: s.Now.Wall.Round(0), Boot: s.Now.Boot}
	e.recent.load(s.Seen)
	var mutes []*mute
	for i := range s.Mutes {
		mutes = append(mutes, &s.Mutes[i])
	}
	e.loadMutes(mutes)
	for i := range s.Problems {
		_, awaited := s.Absences[s.Problems[i].Rule]
		e.restore(&s.Problems[i], awaited)
	}
	for _, c := range e.conditions {
		for _, old := range s.Conditions {
			if old.Type == c.spec.Type {
				c.current = old
			}
		}
		c.dirty = true // other rules may give it another state
	}
	for _, st := range s.Stems[:min(len(s.Stems), MaxStems)] {
		e.stems[st.Name] = &st.stemState
	}
	e.lossyEnd = e.nextLossEnd()
	for _, en := range e.entries() {
		e.arm(en)
	}
	for _, r := range e.rules {
		if r.awaits() {
			r.absence = s.Absences[r.Name]
		}
	}
	e.absentDue = e.nextAbsence()
	e.resumeLimits(s)
	return nil
}

// ReportedIn returns the firing problems and the conditions of a snapshot, regardless of the current
// rules and boot.
func ReportedIn(data []byte) (firing []problem.Problem, conditions []problem.Condition, err error) {
	s, err := readSnapshot(data)
	if err != nil {
		return nil, nil, err
	}
	for i := range s.Problems {
		if p := &s.Problems[i]; p.State == problem.Firing {
			firing = append(firing, p.Problem)
		}
	}
	return firing, s.Conditions, nil
}

func readSnapshot(data []byte) (*snapshot, error) {
	var of struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if of.Version != snapshotVersion {
		return nil, fmt.Errorf("restore: saved by another version of Kernosis: format %d, want %d", of.Version, snapshotVersion)
	}
	var s snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	return &s, nil
}

// Restarted notifies the engine that nothing was watched until now: sources must report again that
// they are up, and the time before doesn't count as quiet. Losses of the last five minutes still
// make conditions Unknown. A source of level signals (hungtask, mount.readonly) must report the
// signals that still last when it starts. A signal that isn't reported within 5 minutes after its
// source came up is over. A hang that is reported again doesn't count again.
func (e *Engine) Restarted(now event.Moment) {
	e.now = event.Moment{Wall: now.Wall.Round(0), Boot: max(now.Boot, e.now.Boot)}
	maps.DeleteFunc(e.stems, func(_ string, st *stemState) bool { return st.LossyUntil <= e.now.Boot })
	for _, st := range e.stems {
		st.Known, st.Up, st.Reason = false, false, ""
	}
	clear(e.crowded)
	e.lossyEnd, e.absentDue = e.nextLossEnd(), 0
	for _, r := range e.rules {
		r.absence.Resumed = 0
	}
	for _, en := range e.entries() {
		switch r := en.rule; {
		case en.p.State == problem.Pending && r.For > 0:
			e.forget(en) // the signal may have ended; its source reports it again if not
			continue
		case r.Temporary():
			en.Came = e.now.Boot
			en.Confirm, en.Again = en.signalEnds(), en.ReportedAt
		case en.p.State == problem.Pending:
			en.Came = e.now.Boot
		case en.p.State == problem.Firing:
			en.p.SuppressedBy = cause(en)
			en.QuietFrom = e.now.Boot
			en.Confirm, en.ConfirmBy, en.Again = en.signalEnds(), 0, en.ReportedAt
		}
		e.arm(en)
	}
	for _, c := range e.conditions {
		old := c.current
		c.current = e.judge(c)
		c.current.LastTransition = e.now.Wall
		if old.Status == c.current.Status && !old.LastTransition.IsZero() {
			c.current.LastTransition = old.LastTransition
		}
	}
}

// restore restores a problem if its rule is still the same, see [Rule.sameProblem]. awaited: it was a
// rule with absentFor.
func (e *Engine) restore(p *savedProblem, awaited bool) {
	r := e.byName[p.Rule]
	if r == nil || p.Fault != r.Fault || p.Condition != r.Condition || awaited != r.awaits() || !slices.Equal(p.GroupBy, r.GroupBy) ||
		r.series.entries[p.Group] != nil || len(r.series.entries) > maxMaxGroups {
		return
	}
	switch p.State {
	case problem.Pending, problem.Firing, problem.Resolved:
	default:
		return
	}
	en := &entry{p: p.Problem, progress: p.progress, window: window{p.Window}, reporter: e.byName[p.Reporter], index: -1}
	en.Came = max(en.Came, en.LastSeen) // a snapshot of an older version has no Came
	en.Bursts = en.Bursts[:min(len(en.Bursts), maxBursts)]
	en.folded.load(p.Folded)
	// A snapshot of an older version does not contain the groups.
	en.folded.uncounted = p.Uncounted || p.Group == OverflowGroup && len(p.Folded) == 0
	en.p.Evidence = slices.DeleteFunc(en.p.Evidence, func(ev *event.Event) bool { return ev == nil })
	if len(en.p.Evidence) > maxEvidence {
		en.p.Evidence = en.p.Evidence[:maxEvidence]
	}
	if len(en.window.marks) > maxThreshold {
		en.window.marks = en.window.marks[len(en.window.marks)-maxThreshold:]
	}
	slices.SortStableFunc(en.window.marks, func(a, b mark) int { return cmp.Compare(a.At, b.At) })
	e.adopt(en, r)
	if en.p.State != problem.Pending {
		en.p.MutedUntil = e.mutedUntil(en)
	}
}
