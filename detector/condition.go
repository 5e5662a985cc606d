package detector

import (
	"cmp"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// Condition reasons that no rule sets. Reasons are API.
const (
	ReasonSourceUnavailable = "SourceUnavailable" // Unknown: every source is down
	ReasonSourceLossy       = "SourceLossy"       // Unknown: records were lost in the last 5 minutes
	ReasonNoRule            = "NoRule"            // Unknown: registered, but no rule sets it
	ReasonSuppressed        = "SuppressedByCause" // False: all its problems are hidden by their cause
	ReasonMuted             = "Muted"             // False: all its problems are muted or hidden by their cause
)

// conditionState is one node condition.
type conditionState struct {
	spec    ConditionSpec
	series  []*series
	rules   []*Rule
	stems   []string // of the kinds its rules use, without logs, checks and gauges; sorted
	current problem.Condition
	dirty   bool
}

// refresh evaluates a condition and emits a change.
func (e *Engine) refresh(c *conditionState, now time.Time) {
	c.dirty = false
	next := e.judge(c)
	next.LastTransition = c.current.LastTransition
	if next == c.current {
		if next.LastTransition.IsZero() {
			c.current.LastTransition = now // start of its first state
		}
		return
	}
	if next.Status != c.current.Status || next.LastTransition.IsZero() {
		next.LastTransition = now
	}
	c.current = next
	e.out = append(e.out, problem.Transition{Condition: &next})
}

// judge computes a condition from its problems: True if a problem fires that is neither hidden
// nor muted; else Unknown if the sources can't be trusted; else False. The message contains no
// values that change without an event, such as ages.
func (e *Engine) judge(c *conditionState) problem.Condition {
	is := func(status problem.Status, reason, message string) problem.Condition {
		return problem.Condition{Type: c.spec.Type, Status: status, Reason: reason, Message: message}
	}
	var worst, muted *entry
	shown, hidden := 0, ""
	for _, s := range c.series {
		if s.firing == 0 {
			continue
		}
		for _, en := range s.entries {
			switch {
			case en.p.State != problem.Firing:
			case en.p.SuppressedBy != "":
				if hidden == "" || en.p.SuppressedBy < hidden {
					hidden = en.p.SuppressedBy
				}
			case !en.p.MutedUntil.IsZero():
				if muted == nil || worse(en, muted) {
					muted = en
				}
			default:
				shown++
				if worst == nil || worse(en, worst) {
					worst = en
				}
			}
		}
	}
	switch reason, text := e.trust(c); {
	case shown > 1:
		return is(problem.True, worst.p.Reason, worst.p.Message+" (and "+strconv.Itoa(shown-1)+" more)")
	case shown == 1:
		return is(problem.True, worst.p.Reason, worst.p.Message)
	case reason != "":
		return is(problem.Unknown, reason, text)
	case muted != nil:
		return is(problem.False, ReasonMuted, mutedText(muted))
	case hidden != "":
		return is(problem.False, ReasonSuppressed, "only consequences of rule "+hidden+" were detected")
	}
	return is(problem.False, c.spec.HealthyReason, c.spec.HealthyMessage)
}

// worse orders problems by severity, most severe first, then by age, oldest first.
func worse(a, b *entry) bool {
	return cmp.Or(
		cmp.Compare(b.p.Severity.Rank(), a.p.Severity.Rank()),
		cmp.Compare(a.Since, b.Since),
		cmp.Compare(a.p.Rule, b.p.Rule),
		cmp.Compare(a.p.Group, b.p.Group),
	) < 0
}
