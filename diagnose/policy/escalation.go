package policy

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Attempt is a repair that was begun.
type Attempt struct {
	Diagnosis types.UID // that made it
	Operation string
	Started   time.Time
	// State says whether it has helped; empty: nobody will see, as its end is not known.
	// One behind which another was allowed has not.
	State VerifyState
	// Over: its Diagnosis has ended, with an outcome that is known, and makes nothing more.
	Over bool
}

// helpless reports whether it was seen not to have helped.
func (a *Attempt) helpless() bool { return a.State == NotHelped || a.State == Moot }

// step returns an operation's place in the escalation, -1 where it has none.
func (p *Policy) step(operation string) int {
	return slices.IndexFunc(p.spec.Escalation, func(s v1alpha1.EscalationStep) bool { return s.Operation == operation })
}

// until returns until when an attempt may help of which nobody will see it; zero: somebody
// will, or has.
func (p *Policy) until(a *Attempt) time.Time {
	if a.State != "" {
		return time.Time{}
	}
	return a.Started.Add(p.VerifyWithin(a.Operation))
}

// countAttempts counts the attempts of a step, and returns one that may help yet. One that
// nobody verifies counts as made once its time is up.
func (p *Policy) countAttempts(step int, attempts []Attempt, now time.Time) (made int, underWay *Attempt) {
	for i := range attempts {
		a := &attempts[i]
		if a.Operation != p.spec.Escalation[step].Operation {
			continue
		}
		made++
		if a.State == Verifying || now.Before(p.until(a)) {
			underWay = a
		}
	}
	return made, underWay
}

// turn holds an operation of the escalation until it is its turn.
func (p *Policy) turn(w *Want, now time.Time) Decision {
	own := p.step(w.Operation)
	for i := 0; i <= own; i++ {
		s := &p.spec.Escalation[i]
		made, underWay := p.countAttempts(i, w.Attempts, now)
		switch {
		case underWay != nil:
			return Decision{
				Verb: v1alpha1.RemediationWait, Reason: v1alpha1.ReasonEscalationOrder, Again: p.until(underWay),
				Message: fmt.Sprintf("%s, begun %s, may help yet", s.Operation, stamp(underWay.Started)),
			}
		case i == own && made >= int(s.Attempts):
			d := Decision{
				Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonAttemptsExhausted,
				Message: fmt.Sprintf("%s was made %d of %s for this problem", s.Operation, made, times(s.Attempts)),
			}
			if w.Again {
				d.Reason = v1alpha1.ReasonMadeBefore // the next step is behind it
			}
			return d
		case i < own && made < int(s.Attempts):
			return Decision{
				Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonEscalationOrder,
				Message: fmt.Sprintf("%s comes before %s: made %d of %s for this problem", s.Operation, w.Operation, made, times(s.Attempts)),
			}
		}
	}
	return p.unproven(own, w)
}

// unproven holds a step while nothing reports whether the attempt before it has helped: that
// its time is up does not say that the problem lasts. Whoever approves it has looked.
func (p *Policy) unproven(own int, w *Want) Decision {
	var last *Attempt
	for i := range w.Attempts {
		a := &w.Attempts[i]
		if step := p.step(a.Operation); step >= 0 && step <= own && (last == nil || !a.Started.Before(last.Started)) {
			last = a
		}
	}
	switch {
	case last == nil || approved(w) || last.helpless():
		return Decision{}
	case last.State == Helped && w.Problem == "":
		return Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonProblemResolved, Message: last.Operation + " has helped"}
	case last.State == Helped:
		return Decision{} // and the problem came back
	case last.State == "" && w.Problem == v1alpha1.ProblemLasts && (w.Seen.IsZero() || !w.Seen.Before(p.until(last))):
		return Decision{}
	}
	return Decision{
		Verb: v1alpha1.RemediationWait, Reason: v1alpha1.ReasonProblemUnknown,
		Message: fmt.Sprintf("%s, begun %s, may have helped: nothing shows whether the problem lasts", last.Operation, stamp(last.Started)),
	}
}

func times(n int32) string { return display.Count(n, "time") }

// Next returns the operation whose turn it is, for the attempts that were made for a
// problem; none where the escalation is used up, or has nothing. While one may help yet it
// is none either, and again says when to ask, if that is known.
func (p *Policy) Next(attempts []Attempt, now time.Time) (operation string, again time.Time) {
	for i := range p.spec.Escalation {
		made, underWay := p.countAttempts(i, attempts, now)
		if underWay != nil {
			return "", p.until(underWay)
		}
		if made < int(p.spec.Escalation[i].Attempts) {
			return p.spec.Escalation[i].Operation, time.Time{}
		}
	}
	return "", time.Time{}
}

// escalates reports whether a repair goes on from one that ended without helping: the
// same step again, or one behind it. It need not wait for the cooldown, and it takes the slot
// over that such a repair holds while its node is out of service.
func (p *Policy) escalates(last *v1alpha1.Repair, w *Want) bool {
	from, to := p.step(last.Operation), p.step(w.Operation)
	if from < 0 || to < from {
		return false
	}
	var a *Attempt // the last one of that repair
	for i := range w.Attempts {
		if b := &w.Attempts[i]; b.Diagnosis == last.Diagnosis && b.Operation == last.Operation && (a == nil || !b.Started.Before(a.Started)) {
			a = b
		}
	}
	return a != nil && a.helpless() && (last.EndTime != nil || a.Over)
}
