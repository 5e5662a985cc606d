package policy

import (
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// VerifyState is how far the verification of a repair is.
type VerifyState string

// States of a verification.
const (
	Verifying VerifyState = "Verifying"
	Helped    VerifyState = "Helped"    // the problem was gone, and the node ready, in time
	NotHelped VerifyState = "NotHelped" // they were not
	// Unknown: nothing reports whether the problem was gone in time. What comes later may.
	Unknown VerifyState = "Unknown"
	// Moot: the problem had gone before the repair, or the node is gone. Nothing was
	// proven; nothing comes after it.
	Moot VerifyState = "Moot"
)

// Verification says whether a repair has helped: a state machine without a clock. That an
// operation has succeeded says nothing of it.
//
// The clocks of the node and of the controller may differ by minutes. So times of the node
// are compared with each other alone, and what the controller sees with its own.
type Verification struct {
	// Begun and End are when the repair began, and until when it may help, by the node's
	// clock. A zero Begun: the problem lasted when it began, which is known by another way
	// than time. A zero End: the node has not said when the repair ended.
	Begun, End time.Time
	Deadline   time.Time // until when it may help, by the controller's clock
	State      VerifyState
	Message    string // why, once it is no longer Verifying
}

// Verify returns the verification of a repair that began and ended by the node's clock, of
// which the controller has had the end since noted, by its own. verifyWithin counts from the
// end: a drain may itself take longer than that.
func Verify(begun, ended, noted time.Time, verifyWithin time.Duration) Verification {
	v := Verification{Begun: begun, Deadline: noted.Add(verifyWithin), State: Verifying}
	if !ended.IsZero() {
		v.End = ended.Add(verifyWithin)
	}
	return v
}

// Observation is what is seen of a node and its problem.
type Observation struct {
	Now     time.Time             // by the controller's clock; the other times are the node's
	Problem v1alpha1.ProblemState // empty: nothing reports whether it lasts
	Gone    time.Time             // since when it is gone, if it is
	Seen    time.Time             // until when it is known to last, if it does; zero: until Now
	// Ready is since when the node is ready; zero: it is not. A node that is silent
	// reports no problem either.
	Ready    time.Time
	NodeGone bool
}

// Observe returns the verification after an observation. Once it is neither Verifying nor
// Unknown it stays as it is. It may come late: what counts is when the problem was gone, and
// not when somebody looked, once the node has said when the repair ended.
func (v Verification) Observe(o *Observation) Verification {
	gone := o.Problem == v1alpha1.ProblemGone
	recovered := later(o.Gone, o.Ready)
	switch {
	case v.State != Verifying && v.State != Unknown:
	case o.NodeGone:
		v.State, v.Message = Moot, "the node is gone"
	case gone && o.Gone.Before(v.Begun):
		v.State, v.Message = Moot, fmt.Sprintf("the problem was gone %s, before the repair began %s", stamp(o.Gone), stamp(v.Begun))
	case gone && !o.Ready.IsZero() && v.inTime(recovered, o.Now):
		v.State, v.Message = Helped, fmt.Sprintf("the problem was gone and the node ready %s", stamp(recovered))
	case o.Now.After(v.Deadline) && (o.Problem == "" || o.Problem == v1alpha1.ProblemLasts && !o.Seen.IsZero() && o.Seen.Before(v.Deadline)):
		v.State, v.Message = Unknown, fmt.Sprintf("nothing shows whether the problem was gone by %s", stamp(v.Deadline))
	case o.Now.After(v.Deadline):
		v.State, v.Message = NotHelped, fmt.Sprintf("until %s %s", stamp(v.Deadline), v.lacking(o))
	}
	return v
}

// inTime reports whether something of the node was early enough, that is seen now.
func (v Verification) inTime(at, now time.Time) bool {
	if v.End.IsZero() {
		return !now.After(v.Deadline)
	}
	return !at.After(v.End)
}

// lacking says what has kept a repair from having helped in time.
func (v Verification) lacking(o *Observation) string {
	switch {
	case o.Problem != v1alpha1.ProblemGone || !v.inTime(o.Gone, o.Now):
		return "the problem lasted"
	default:
		return "the node was not ready"
	}
}
