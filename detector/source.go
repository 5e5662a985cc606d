package detector

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// lossyFor is how long a loss makes a condition Unknown: the lost record may have been the fault,
// and a lasting fault is reported again within this time.
const lossyFor = 5 * time.Minute

// MaxStems bounds the tracked sources, in case one invents names. Events on the state of further
// sources are dropped and counted ([Stats].Sources), and conditions that need all sources of their
// family become Unknown.
const MaxStems = 256

// stemState is the state of the sources of one stem.
type stemState struct {
	Known      bool          `json:"known,omitempty"` // a source event was seen
	Up         bool          `json:"up,omitempty"`
	Kernel     bool          `json:"kernel,omitempty"`     // a log that contains kernel messages
	Reason     string        `json:"reason,omitempty"`     // why it is down
	LossyUntil time.Duration `json:"lossyUntil,omitempty"` // since boot; zero: no recent loss
	LossReason string        `json:"lossReason,omitempty"`
	// KernelLossyUntil is LossyUntil of losses that may include kernel messages.
	KernelLossyUntil time.Duration `json:"kernelLossyUntil,omitempty"`
}

func (e *Engine) stem(name string) *stemState {
	st := e.stems[name]
	if st == nil {
		st = &stemState{}
		if len(e.stems) < MaxStems {
			e.stems[name] = st
		} else {
			e.roomless, e.lastRoomless = e.roomless+1, display.Safe(name, 128)
			family, _, _ := strings.Cut(name, "/")
			e.crowded[family] = true
		}
	}
	return st
}

// sourceChanged handles a source that came up, went down or is gone.
func (e *Engine) sourceChanged(d *event.SourceData, now time.Duration) {
	if d == nil {
		return
	}
	before := make([][]*Rule, len(e.series))
	for i, s := range e.series {
		before[i] = e.watching(s)
	}
	st := e.stem(d.Stem)
	st.Known, st.Up, st.Kernel, st.Reason = !d.Gone, d.Up, d.Kernel, reasonText(d.Reason)
	e.absencesOf(d.Stem, st, false, now)
	e.markStem(d.Stem, st)
	for _, en := range e.entries() {
		signal := en.signal()
		if ofSignal := signal != nil && signal.looksAt(d.Stem, st); ofSignal || en.rule.looksAt(d.Stem, st) {
			missed := e.needs(en.rule.Rule, d.Stem, st, false) || ofSignal && e.needs(signal, d.Stem, st, false)
			e.sourceOf(en, ofSignal, missed, d.Up, now)
		}
	}
	for i, s := range e.series {
		e.takenOver(s, before[i], now)
	}
}

// watching returns the rules that would report a further event of a permanent problem of the series.
// It is nil if the series has none.
func (e *Engine) watching(s *series) (out []*Rule) {
	if s.condition == nil || s.firing == 0 {
		return nil
	}
	for _, r := range s.rules {
		if !r.awaits() && !e.standsBack(r) && e.sees(r) {
			out = append(out, r)
		}
	}
	return out
}

// watches reports whether the rule, a rule of the problem's series, would report the problem's
// events in the same group.
func (en *entry) watches(r *Rule) bool { return len(r.GroupBy) == len(en.rule.GroupBy) }

// takenOver restarts the quiet time of problems that are still watched, but only by rules that did
// not watch them before.
func (e *Engine) takenOver(s *series, before []*Rule, now time.Duration) {
	after := e.watching(s)
	if slices.Equal(before, after) {
		return
	}
	for _, en := range s.entries {
		watched := slices.ContainsFunc(after, en.watches)
		still := slices.ContainsFunc(after, func(r *Rule) bool { return en.watches(r) && slices.Contains(before, r) })
		if en.p.State == problem.Firing && watched && !still {
			en.QuietFrom = now
			e.arm(en)
		}
	}
}

// reasonText returns the bounded reason why a source is down.
func reasonText(reason string) string { return cmp.Or(display.Safe(reason, 200), "down") }

// sourceOf updates an entry after one of its sources came up or went down. ofSignal: the source
// reports the entry's level signal. missed: no other source has the events of the time it was down.
func (e *Engine) sourceOf(en *entry, ofSignal, missed, up bool, now time.Duration) {
	r := en.rule
	switch {
	case en.p.State == problem.Pending && r.For > 0:
		if !up {
			e.forget(en) // the end of the signal may be missed
		}
	case en.p.State != problem.Firing || r.Temporary():
	case up:
		if missed {
			en.QuietFrom = now
		}
		if ofSignal && en.Confirm && en.ConfirmBy == 0 {
			en.ConfirmBy = now + confirmWithin
		}
		e.arm(en)
	case ofSignal && en.signalEnds():
		// The end of the signal may be missed.
		en.Confirm, en.ConfirmBy, en.Again = true, 0, en.ReportedAt
	}
}

// recordsLost handles the loss of records of a stem.
func (e *Engine) recordsLost(ev *event.Event, now time.Duration) {
	if ev.Lost == nil {
		return
	}
	if ev.Lost.Reason == LostToRateLimit {
		delete(e.limits.lost, ev.Lost.Stem) // in a replay, this event reports the loss that the snapshot contains
	}
	st := e.stem(ev.Lost.Stem)
	st.LossyUntil = now + lossyFor
	if ev.Lost.Reason != event.LostSuppressed {
		st.KernelLossyUntil = st.LossyUntil
	}
	st.LossReason = display.Safe(ev.Lost.Reason, 64)
	e.lossyEnd = e.nextLossEnd()
	e.absencesOf(ev.Lost.Stem, st, true, now)
	e.markStem(ev.Lost.Stem, st)
}

// lossEnds clears losses that are older than lossyFor.
func (e *Engine) lossEnds(now time.Duration) {
	if e.lossyEnd == 0 || e.lossyEnd > now {
		return
	}
	for name, st := range e.stems {
		for _, until := range []*time.Duration{&st.LossyUntil, &st.KernelLossyUntil} {
			if *until != 0 && *until <= now {
				*until = 0
				e.markStem(name, st)
			}
		}
	}
	e.lossyEnd = e.nextLossEnd()
}

func (e *Engine) nextLossEnd() (next time.Duration) {
	for _, st := range e.stems {
		next = earlier(earlier(next, st.LossyUntil), st.KernelLossyUntil)
	}
	return next
}

// markStem marks the conditions that depend on the stem, also through a fallback rule, to be
// evaluated again.
func (e *Engine) markStem(name string, st *stemState) {
	for _, c := range e.conditions {
		if slices.ContainsFunc(c.rules, func(r *Rule) bool { return r.looksAt(name, st) || slices.Contains(r.FallbackFor, name) }) {
			c.dirty = true
		}
	}
}

// entries returns all entries, in the order of [sortedEntries].
func (e *Engine) entries() (all []*entry) {
	for _, s := range e.series {
		all = append(all, sortedEntries(s)...)
	}
	return all
}

// sortedEntries returns the entries sorted by group, for loops that emit transitions: a replay must
// emit them in the same order.
func sortedEntries(s *series) []*entry {
	return slices.SortedFunc(maps.Values(s.entries), func(a, b *entry) int { return cmp.Compare(a.p.Group, b.p.Group) })
}

// SourceState is the state of one source of events.
type SourceState struct {
	Stem   string
	Up     bool
	Reason string // why it is down
	// Lost is why records were lost in the last five minutes; empty: none were.
	Lost string
}

// Sources returns the sources that have reported their state or a loss, sorted by stem. It omits the
// families of logs and checks, which represent members that are not configured.
func (e *Engine) Sources() []SourceState {
	var out []SourceState
	for stem, st := range e.stems {
		if stem == event.LogStem || stem == event.CheckStem || !st.Known && st.LossyUntil == 0 {
			continue
		}
		s := SourceState{Stem: stem, Up: st.Up || !st.Known, Reason: st.Reason}
		if s.Up {
			s.Reason = ""
		}
		if st.LossyUntil != 0 {
			s.Lost = st.LossReason
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SourceState) int { return cmp.Compare(a.Stem, b.Stem) })
	return out
}
