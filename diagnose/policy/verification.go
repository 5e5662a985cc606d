package policy

import (
	"fmt"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// VerifyState is the state of the verification of a repair.
type VerifyState string

// States of a verification.
const (
	Verifying VerifyState = "Verifying"
	Helped    VerifyState = "Helped"    // the problem was gone, and the node ready, in time
	NotHelped VerifyState = "NotHelped" // they were not
	// Unknown: nothing shows whether the problem was gone in time. A later observation may.
	Unknown VerifyState = "Unknown"
	// Moot: the problem was gone before the repair, or the node is gone. Nothing was proven, and
	// this is final.
	Moot VerifyState = "Moot"
)

// Verification decides whether a repair has helped: a state machine without a clock. The success of
// an operation is no evidence.
//
// The clocks of node and controller may differ by minutes. So the node's times are only compared
// with each other, and the controller's observations only with its own clock.
type Verification struct {
	// Begun and End are when the repair began, and until when it may help, by the node's clock. A
	// zero Begun means that the problem is known to have lasted when the repair began, so that no
	// times need comparing. A zero End means that the node has not reported the end of the repair.
	Begun, End time.Time
	Deadline   time.Time // until when it may help, by the controller's clock
	State      VerifyState
	Message    string // why, once it is no longer Verifying
}

// Verify returns the verification of a repair that began and ended at these times of the node's
// clock. noted is when the controller learned of its end, by its own clock. verifyWithin counts
// from the end, because a drain may itself take longer than that.
//
// For a problem whose times are the controller's, such as an alert, pass begun by the controller's
// clock and noted as ended. Then only the observed Ready time is by the node's clock; Observe treats
// a time in the future as Now.
func Verify(begun, ended, noted time.Time, verifyWithin time.Duration) Verification {
	v := Verification{Begun: begun, Deadline: noted.Add(verifyWithin), State: Verifying}
	if !ended.IsZero() {
		v.End = ended.Add(verifyWithin)
	}
	return v
}

// Observation is the observed state of a node and its problem.
type Observation struct {
	Now     time.Time             // by the controller's clock; the other times are the node's
	Problem v1alpha1.ProblemState // empty: nothing reports whether it lasts
	Gone    time.Time             // since when it is gone, if it is
	Seen    time.Time             // until when it is known to last, if it does; zero: until Now
	// Ready is since when the node is ready; zero: it is not. The absence of problems alone proves
	// nothing, because a silent node reports none.
	Ready    time.Time
	NodeGone bool
}

// Observe returns the verification after an observation. Any state but Verifying and Unknown is
// final. A late observation is fine: once the node has reported when the repair ended, only the
// time at which the problem was gone counts.
func (v Verification) Observe(o *Observation) Verification {
	gone := o.Problem == v1alpha1.ProblemGone
	ready := o.Ready
	if v.End.Equal(v.Deadline) && ready.After(o.Now) {
		ready = o.Now // the node's clock is ahead of the controller's, which times the rest
	}
	recovered := later(o.Gone, ready)
	switch {
	case v.State != Verifying && v.State != Unknown:
	case o.NodeGone:
		v.State, v.Message = Moot, "the node is gone"
	case gone && o.Gone.Before(v.Begun):
		v.State, v.Message = Moot, fmt.Sprintf("the problem was gone at %s, before the repair began at %s", stamp(o.Gone), stamp(v.Begun))
	case gone && !o.Ready.IsZero() && v.inTime(recovered, o.Now):
		v.State, v.Message = Helped, fmt.Sprintf("the problem was gone and the node ready at %s", stamp(recovered))
	case o.Now.After(v.Deadline) && (o.Problem == "" || o.Problem == v1alpha1.ProblemLasts && !o.Seen.IsZero() && o.Seen.Before(v.Deadline)):
		v.State, v.Message = Unknown, fmt.Sprintf("nothing shows whether the problem was gone by %s", stamp(v.Deadline))
	case o.Now.After(v.Deadline) && (!gone || !v.inTime(o.Gone, o.Now)):
		v.State, v.Message = NotHelped, fmt.Sprintf("until %s the problem lasted", stamp(v.Deadline))
	case o.Now.After(v.Deadline):
		v.State, v.Message = NotHelped, fmt.Sprintf("until %s the node was not ready", stamp(v.Deadline))
	}
	return v
}

// inTime reports whether something that is observed now happened on the node early enough.
func (v Verification) inTime(at, now time.Time) bool {
	if v.End.IsZero() {
		return !now.After(v.Deadline)
	}
	return !at.After(v.End)
}
