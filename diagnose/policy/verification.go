package policy

import (
	"fmt"
	"time"
)

// VerifyState is how far the verification of a repair is.
type VerifyState string

// States of a verification.
const (
	Verifying VerifyState = "Verifying"
	Helped    VerifyState = "Helped"    // the problem was gone, and the node ready, in time
	NotHelped VerifyState = "NotHelped" // they were not
	// Moot: the problem had gone before the repair, or the node is gone. Nothing was
	// proven; nothing comes after it.
	Moot VerifyState = "Moot"
)

// Verification says whether a repair has helped: a state machine without a clock. That an
// operation has succeeded says nothing of it.
type Verification struct {
	Begun    time.Time // when the repair began
	Deadline time.Time // Begun and verifyWithin, or the repair's end and verifyWithin
	State    VerifyState
	Message  string // why, once it is no longer Verifying
}

// Verify returns the verification of a repair. verifyWithin counts from its end: a drain
// may itself take longer than that.
func Verify(begun, ended time.Time, verifyWithin time.Duration) Verification {
	return Verification{Begun: begun, Deadline: later(begun, ended).Add(verifyWithin), State: Verifying}
}

// Observation is what is seen of a node and its problem. Its times are of one clock.
type Observation struct {
	Now     time.Time
	Problem ProblemState
	Gone    time.Time // since when it is gone, if it is
	// Ready is since when the node is ready; zero: it is not. A node that is silent tells
	// of no problem either.
	Ready    time.Time
	NodeGone bool
}

// Observe returns the verification after an observation. Once it is no longer Verifying
// it stays as it is. It may come late: what counts is when the problem was gone, and not
// when somebody looked.
func (v Verification) Observe(o *Observation) Verification {
	gone := o.Problem == ProblemGone
	// Neither can have been before it was seen.
	goneAt, recovered := earlier(o.Gone, o.Now), earlier(later(o.Gone, o.Ready), o.Now)
	switch {
	case v.State != Verifying:
	case o.NodeGone:
		v.State, v.Message = Moot, "the node is gone"
	case gone && goneAt.Before(v.Begun):
		v.State, v.Message = Moot, fmt.Sprintf("the problem was gone %s, before the repair began %s", stamp(goneAt), stamp(v.Begun))
	case gone && !o.Ready.IsZero() && !recovered.After(v.Deadline):
		v.State, v.Message = Helped, fmt.Sprintf("the problem was gone and the node ready %s", stamp(recovered))
	case o.Now.After(v.Deadline):
		v.State, v.Message = NotHelped, fmt.Sprintf("until %s %s", stamp(v.Deadline), v.lacking(o))
	}
	return v
}

// lacking says what has kept a repair from having helped in time.
func (v Verification) lacking(o *Observation) string {
	switch {
	case o.Problem == ProblemUnknown:
		return "nothing told that the problem was gone"
	case o.Problem != ProblemGone || o.Gone.After(v.Deadline):
		return "the problem lasted"
	default:
		return "the node was not ready"
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
