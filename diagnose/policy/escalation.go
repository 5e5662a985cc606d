package policy

import (
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
	// State is whether it has helped; empty: it can't be verified, because its end is unknown. An
	// attempt that was followed by another allowed one has not helped.
	State VerifyState
	// Failed means that it did not succeed: it failed, or its outcome is not known.
	Failed bool
	// Over means that its Diagnosis has ended with a known outcome, and makes no more repairs.
	Over bool
}

// helpless reports whether the attempt is known not to have helped.
func (a *Attempt) helpless() bool { return a.State == NotHelped || a.State == Moot }

// step returns an operation's index in the escalation, or -1.
func (p *Policy) step(operation string) int {
	return slices.IndexFunc(p.spec.Escalation, func(s v1alpha1.EscalationStep) bool { return s.Operation == operation })
}

// Orders reports whether an operation is a step of the escalation.
func (p *Policy) Orders(operation string) bool { return p.step(operation) >= 0 }

// until returns until when an attempt that can't be verified may still help; zero: it is verified,
// or will be.
func (p *Policy) until(a *Attempt) time.Time {
	if a.State != "" {
		return time.Time{}
	}
	return a.Started.Add(p.VerifyWithin(a.Operation))
}

// countAttempts counts the attempts of a step, and returns one that may still help. An attempt that
// can't be verified counts as under way until its time is up.
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

// turn holds back an operation of the escalation until it is its turn.
func (p *Policy) turn(w *Want, now time.Time) Decision {
	own := p.step(w.Operation)
	for i := 0; i <= own; i++ {
		s := &p.spec.Escalation[i]
		made, underWay := p.countAttempts(i, w.Attempts, now)
		switch {
		case underWay != nil:
			return waitUntil(p.until(underWay), v1alpha1.ReasonEscalationOrder,
				"%s, begun %s, may still help", s.Operation, stamp(underWay.Started))
		case i == own && made >= int(s.Attempts):
			d := withheld(v1alpha1.ReasonAttemptsExhausted,
				"%s was made %d of %s for this problem", s.Operation, made, times(s.Attempts))
			if last := w.lastOf(w.Operation); w.Again && (last == nil || !last.Failed || p.leads(w, now)) {
				d.Reason = v1alpha1.ReasonMadeBefore // the run continues after it
			}
			return d
		case i < own && made < int(s.Attempts):
			return withheld(v1alpha1.ReasonEscalationOrder,
				"%s comes before %s: made %d of %s for this problem", s.Operation, w.Operation, made, times(s.Attempts))
		}
	}
	return p.unproven(own, w)
}

// leads reports whether a step with attempts left comes after the repair in its OperationSet.
func (p *Policy) leads(w *Want, now time.Time) bool {
	return slices.ContainsFunc(w.Later, func(operation string) bool {
		step := p.step(operation)
		if step < 0 {
			return false
		}
		made, _ := p.countAttempts(step, w.Attempts, now)
		return made < int(p.spec.Escalation[step].Attempts)
	})
}

// unproven holds back a step while nothing shows whether the attempt before it helped: a timeout
// does not prove that the problem lasts. An approval overrides this, because a person has checked.
func (p *Policy) unproven(own int, w *Want) Decision {
	last := w.last(func(a *Attempt) bool { return p.Orders(a.Operation) && p.step(a.Operation) <= own })
	switch {
	case last == nil || approved(w) || last.helpless():
		return Decision{}
	case last.State == Helped && w.Problem == "":
		return withheld(v1alpha1.ReasonProblemResolved, "%s has helped", last.Operation)
	case last.State == Helped:
		return Decision{} // and the problem came back
	case last.State == "" && w.Problem == v1alpha1.ProblemLasts && (w.Seen.IsZero() || !w.Seen.Before(p.until(last))):
		return Decision{}
	}
	return wait(v1alpha1.ReasonProblemUnknown,
		"%s, begun %s, may have helped: nothing shows whether the problem lasts", last.Operation, stamp(last.Started))
}

func times(n int32) string { return display.Count(n, "time") }

// Next returns the next operation, given the attempts made for a problem. It returns "" if an
// attempt may still help, or if the escalation is exhausted or empty.
func (p *Policy) Next(attempts []Attempt, now time.Time) (operation string) {
	for i := range p.spec.Escalation {
		made, underWay := p.countAttempts(i, attempts, now)
		if underWay != nil {
			return ""
		}
		if made < int(p.spec.Escalation[i].Attempts) {
			return p.spec.Escalation[i].Operation
		}
	}
	return ""
}

// escalates reports whether a repair continues from an earlier one that did not help: it is the
// same step again, or a later one. Such a repair does not wait for the cooldown, and takes over the
// slot that the earlier repair holds while its node is out of service.
func (p *Policy) escalates(last *v1alpha1.Repair, w *Want) bool {
	from, to := p.step(last.Operation), p.step(w.Operation)
	if from < 0 || to < from {
		return false
	}
	a := w.last(func(a *Attempt) bool { return a.Diagnosis == last.Diagnosis && a.Operation == last.Operation })
	return a != nil && a.helpless() && (last.EndTime != nil || a.Over)
}
