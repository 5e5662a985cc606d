package detector

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

// MaxMutes bounds the mutes in force. If more are needed, change the rules.
const MaxMutes = 1000

// mutes is the set of mutes in force.
type mutes struct {
	list []*mute       // in force, sorted
	end  time.Duration // since boot, when the next mute ends; zero: never
	// Another source may have reported a problem first, so a mute applies to the
	// problems of all rules that share its rule's fault.
	bySeries map[*series][]*mute
}

// mute is a mute in force.
type mute struct {
	problem.Mute
	End   time.Duration `json:"end"` // Until as time since boot, converted when the mute began
	parts []*string     // patterns by index in the rule's groupBy; nil: any value
	never bool          // a field is not in the rule's groupBy, so nothing matches
}

// Mutes returns the mutes in force, sorted by rule, fields and time.
func (e *Engine) Mutes() []problem.Mute {
	var out []problem.Mute
	for _, m := range e.mutes.list {
		out = append(out, m.Mute)
	}
	return out
}

// SetMutes replaces the mutes in force. The transitions report which mutes began and ended, and
// which permanent problems became muted or unmuted. A mute that has already expired is ignored. A
// mute that is already in force keeps its end, even if the wall clock was changed. The returned
// slice is valid until the next method call on the engine.
func (e *Engine) SetMutes(list []problem.Mute, now event.Moment) []problem.Transition {
	return e.setMutes(list, e.mutes.list, now)
}

// RenewMutes is like [Engine.SetMutes], but also converts the ends of mutes in force again, by a wall
// clock that was wrong when they began.
func (e *Engine) RenewMutes(list []problem.Mute, now event.Moment) []problem.Transition {
	return e.setMutes(list, nil, now)
}

// setMutes replaces the mutes in force. Mutes in kept keep their ends.
func (e *Engine) setMutes(list []problem.Mute, kept []*mute, now event.Moment) []problem.Transition {
	now = e.start(now)
	old := e.mutes.list
	var next []*mute
	for _, m := range list {
		m.Until, m.Reason = m.Until.Round(0), display.Safe(m.Reason, maxMuteReason)
		one := find(kept, m)
		if one == nil {
			one = &mute{Mute: m, End: now.Boot + min(m.Until.Sub(now.Wall), forever)}
		}
		if one.End > now.Boot {
			next = append(next, one)
		}
	}
	e.loadMutes(next)
	for _, m := range old {
		if find(e.mutes.list, m.Mute) == nil {
			e.emitMute(m, true)
		}
	}
	for _, m := range e.mutes.list {
		if find(old, m.Mute) == nil {
			e.emitMute(m, false)
		}
	}
	e.followAll()
	return e.finish(now)
}

// loadMutes puts mutes in force without emitting transitions.
func (e *Engine) loadMutes(list []*mute) {
	e.mutes.list = e.mutes.list[:0:0]
	for _, m := range list[:min(len(list), MaxMutes)] {
		if find(e.mutes.list, m.Mute) == nil {
			e.mutes.list = append(e.mutes.list, m)
		}
	}
	slices.SortFunc(e.mutes.list, func(a, b *mute) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject(), b.Subject()), a.Until.Compare(b.Until), cmp.Compare(a.Reason, b.Reason))
	})
	e.bindMutes()
}

func find(list []*mute, m problem.Mute) *mute {
	if i := slices.IndexFunc(list, func(o *mute) bool { return o.Equal(&m) }); i >= 0 {
		return list[i]
	}
	return nil
}

func (e *Engine) emitMute(m *mute, over bool) {
	e.out = append(e.out, problem.Transition{Mute: &problem.MuteChange{Mute: m.Mute, Over: over}})
}

// bindMutes resolves the mutes against the rules in force. A mute of an unknown rule
// stays, because the rule may come back with a reload.
func (e *Engine) bindMutes() {
	e.mutes.bySeries, e.mutes.end = make(map[*series][]*mute), 0
	for _, m := range e.mutes.list {
		e.mutes.end = earlier(e.mutes.end, m.End)
		r := e.byName[m.Rule]
		if r == nil {
			continue
		}
		m.parts, m.never = make([]*string, len(r.groupBy)), false
		for name, want := range m.Where {
			i := slices.Index(r.GroupBy, name)
			if i < 0 || i >= len(r.groupBy) {
				m.never = true
				continue
			}
			if r.groupBy[i].Type == event.TypeString {
				want = string(appendPart(nil, display.Prefix(want, event.MaxFieldText)))
			}
			m.parts[i] = &want
		}
		e.mutes.bySeries[r.series] = append(e.mutes.bySeries[r.series], m)
	}
}

// matches reports whether the mute applies to a group of its rule. The overflow
// group merges many groups, so only a mute of the whole rule applies to it.
func (m *mute) matches(group string) bool {
	switch {
	case m.never:
		return false
	case len(m.Where) == 0:
		return true
	case group == OverflowGroup:
		return false
	}
	rest := group
	for i, want := range m.parts {
		var have string
		if have, rest = cutPart(rest); want == nil {
			continue
		}
		if !like(*want, have) || i == len(m.parts)-1 && rest != "" {
			return false
		}
	}
	return true
}

// like reports whether a text matches a pattern, in which * matches any text.
func like(pattern, text string) bool {
	first, rest, ok := strings.Cut(pattern, "*")
	if !ok {
		return pattern == text
	}
	if text, ok = strings.CutPrefix(text, first); !ok {
		return false
	}
	for {
		middle, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, rest)
		}
		if _, text, ok = strings.Cut(text, middle); !ok {
			return false
		}
		rest = after
	}
}

// cutPart splits the first value off a group. Commas in values are escaped with a backslash.
func cutPart(group string) (part, rest string) {
	for i := 0; i < len(group); i++ {
		switch group[i] {
		case '\\':
			i++
		case ',':
			return group[:i], strings.TrimPrefix(group[i+1:], " ")
		}
	}
	return group, ""
}

// mutedUntil returns until when the problem is muted, or zero.
func (e *Engine) mutedUntil(en *entry) (until time.Time) {
	if len(e.mutes.list) == 0 {
		return until
	}
	var end time.Duration
	for _, m := range e.mutes.bySeries[en.rule.series] {
		if m.End > end && m.matches(en.p.Group) {
			end, until = m.End, m.Until
		}
	}
	return until
}

// mutesEnd removes expired mutes in the order of their ends.
func (e *Engine) mutesEnd(now time.Duration) {
	for e.mutes.end != 0 && e.mutes.end <= now {
		end := e.mutes.end
		var rest []*mute
		for _, m := range e.mutes.list {
			if m.End > end {
				rest = append(rest, m)
			} else {
				e.emitMute(m, true)
			}
		}
		e.mutes.list = rest
		e.bindMutes()
		e.followAll()
	}
}

// mutedText returns the message of a condition whose problems are muted.
func mutedText(en *entry) string {
	return "rule " + en.p.Rule + " is muted until " + en.p.MutedUntil.UTC().Format(time.RFC3339) + ", its problem continues: " + en.p.Message
}
