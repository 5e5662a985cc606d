package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
)

// stateVersion changes when older versions of Kernosis must not read the format any more. The
// engine's and the worker's parts have versions of their own.
const stateVersion = 1

// state is the saved state that a restart needs besides the journal.
type state struct {
	BootID string          `json:"bootID"` // problems of an earlier boot ended with it
	Seq    uint64          `json:"seq"`    // the last journal entry that Engine includes
	Engine json.RawMessage `json:"engine"`
	Causes json.RawMessage `json:"causes,omitempty"` // the worker's state, likewise
}

func (a *pipeline) statePath() string { return filepath.Join(a.stateDir, EngineFile) }

// save writes the state after the journal entries that it includes, and syncs both so that they
// survive a power failure. It waits for that until ctx ends.
func (a *pipeline) save(ctx context.Context) error {
	a.mu.Lock()
	snapshot, err := a.engine.Snapshot()
	causes, causesErr := a.causes.State()
	seq := a.journal.Seq()
	a.mu.Unlock()
	if err := errors.Join(err, causesErr); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	st := state{BootID: hostfs.BootID(), Seq: seq, Engine: snapshot, Causes: causes}
	file := statefile.File{Path: a.statePath()}
	if err := a.journal.Do(ctx, func() error { return file.Save(st) }); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return a.journal.Sync(ctx)
}

// restore restores the engine's state at the end of the last run of this boot, even if that run was
// killed. It loads the saved state, then replays the later journal entries. If a reboot or changed
// rules cause differences to the last reports, it reports them.
func (a *pipeline) restore() error {
	var st state
	unread, whole := false, false // whole: the whole journal is replayed
	file := statefile.File{Path: a.statePath()}
	if found, err := file.Load(stateVersion, &st); err != nil {
		a.log.Warn("saved state is unreadable; rebuilding it from the journal", "error", err)
		st, unread = state{BootID: hostfs.BootID()}, !found // Load sets aside what it can't decode
	}
	earlierBoot := st.BootID != "" && st.BootID != hostfs.BootID()
	before := reportedState{firing: map[problemKey]problem.Problem{}, conditions: map[string]problem.Status{}}
	if len(st.Engine) > 0 {
		firing, conditions, err := detector.ReportedIn(st.Engine)
		before.add(firing, conditions)
		if err == nil && !earlierBoot {
			err = a.engine.Resume(st.Engine, a.now())
		}
		if err != nil {
			a.log.Warn("saved state does not match; rebuilding it from the journal", "error", err)
			st.Seq, unread, whole = 0, true, true
		}
	}
	if err := a.causes.Restore(st.Causes, whole); err != nil {
		a.log.Warn("saved state does not match; triggers start without history", "error", err)
		unread = true
	}
	if unread {
		if err := file.SetAside(); err != nil {
			a.log.Warn("can't set aside the saved state", "error", err)
		}
	}
	// Entries after a saved state of this boot are of this boot. Without a saved state, the boot of
	// an entry follows from the last start of the agent in the journal, and before the first start
	// from the clock. With a state of an earlier boot, all entries must be read, because sequence
	// numbers are reused after a power failure.
	after, known, ours := st.Seq, st.Seq > 0, true
	if earlierBoot {
		after, known, ours = 0, true, false
	}
	booted := time.Now().Add(-hostfs.BootTime())
	damaged, err := a.journal.Read(after, func(e journal.Entry) error {
		if e.Boot != "" {
			known, ours = true, e.Boot == hostfs.BootID()
		} else if !known {
			ours = e.Now.After(booted)
		}
		if !ours && e.Seq <= st.Seq {
			return nil
		}
		before.note(e.Transitions)
		if e.BootTime == 0 { // earlier versions did not record it
			e.BootTime = event.Duration(max(e.Now.Sub(booted), 0))
		}
		var repeated []problem.Transition
		if ours {
			repeated = e.Apply(a.engine)
		}
		a.causes.Observe(unrepeated(e.Transitions, repeated, a.engine.Problems), e.Now)
		a.causes.Observe(repeated, e.Now)
		return nil
	})
	if err != nil {
		return fmt.Errorf("restore state: %w", err)
	}
	a.started(&before)
	if damaged > 0 {
		a.log.Warn("damaged journal lines or segments were skipped", "count", damaged)
	}
	return nil
}

type problemKey struct{ rule, group string }

func keyOf(p *problem.Problem) problemKey { return problemKey{p.Rule, p.Group} }

// reportedState is what earlier runs reported: firing problems, and conditions.
type reportedState struct {
	firing     map[problemKey]problem.Problem
	conditions map[string]problem.Status
}

// add adds what was reported according to a saved state.
func (r *reportedState) add(firing []problem.Problem, conditions []problem.Condition) {
	for i := range firing {
		r.firing[keyOf(&firing[i])] = firing[i]
	}
	for _, c := range conditions {
		r.conditions[c.Type] = c.Status
	}
}

// note adds what was reported according to the journal.
func (r *reportedState) note(transitions []problem.Transition) {
	for _, t := range transitions {
		switch p, c := t.Problem, t.Condition; {
		case c != nil:
			r.conditions[c.Type] = c.Status
		case p == nil:
		case p.State == problem.Firing:
			r.firing[keyOf(p)] = *p
		default:
			delete(r.firing, keyOf(p))
		}
	}
}

// changes returns the differences between the engine and what was reported, at now: problems that
// ended; permanent problems that fire, or whose suppression or mute changed, because rules changed;
// and conditions that these make True. Other conditions are Unknown until their sources are up, and
// the engine reports them then.
func (r *reportedState) changes(problems []problem.Problem, conditions []problem.Condition, now time.Time) []problem.Transition {
	var ended, others []problem.Transition
	lasts := map[problemKey]bool{}
	for i := range problems {
		p := &problems[i]
		if p.State != problem.Firing {
			continue
		}
		lasts[keyOf(p)] = true
		was, ok := r.firing[keyOf(p)]
		if p.Condition != "" && (!ok || was.SuppressedBy != p.SuppressedBy || was.MutedUntil.IsZero() != p.MutedUntil.IsZero()) {
			others = append(others, problem.Transition{Problem: p, Again: ok})
		}
	}
	for key, p := range r.firing {
		if !lasts[key] {
			p.State, p.Since = problem.Resolved, now
			ended = append(ended, problem.Transition{Problem: &p})
		}
	}
	slices.SortFunc(ended, func(a, b problem.Transition) int {
		return cmp.Or(cmp.Compare(a.Problem.Rule, b.Problem.Rule), cmp.Compare(a.Problem.Group, b.Problem.Group))
	})
	for i := range conditions {
		if c := &conditions[i]; c.Status == problem.True && r.conditions[c.Type] != problem.True {
			others = append(others, problem.Transition{Condition: c})
		}
	}
	return append(ended, others...)
}

// started records in the engine and the journal that nothing was watched until now, and reports
// what differs from the reports of earlier runs.
func (a *pipeline) started(before *reportedState) {
	e := journal.NewEntry(a.now())
	e.Boot = hostfs.BootID()
	a.saw, a.ended = map[string]bool{}, a.engine.Now().Boot
	for _, s := range a.engine.Sources() {
		a.saw[s.Stem] = s.Up
	}
	a.engine.Restarted(e.Moment())
	e.Transitions = before.changes(a.engine.Problems(), a.engine.Conditions(), e.Now)
	a.report(e)
}

// earlier returns how long ago the last run of this boot ended, and whether the source was up then.
func (a *pipeline) earlier(stem string) (ago time.Duration, ok bool) {
	return hostfs.BootTime() - a.ended, a.saw[stem]
}

// unrepeated returns the transitions of problems that the journal recorded but the engine did not
// repeat in the replay, because rules changed: ends of problems, and permanent problems that fire,
// with the engine's evidence.
func unrepeated(recorded, repeated []problem.Transition, engine func() []problem.Problem) (out []problem.Transition) {
	for _, t := range recorded {
		p := t.Problem
		if p == nil || slices.ContainsFunc(repeated, func(o problem.Transition) bool { return o.Problem != nil && alike(o.Problem, p) }) {
			continue
		}
		if p.State == problem.Firing {
			if p.Condition == "" {
				continue
			}
			all := engine()
			i := slices.IndexFunc(all, func(o problem.Problem) bool { return alike(&o, p) })
			if i < 0 {
				continue
			}
			p.Evidence = all[i].Evidence
		}
		out = append(out, t)
	}
	return out
}

func alike(a, b *problem.Problem) bool { return keyOf(a) == keyOf(b) && a.State == b.State }
