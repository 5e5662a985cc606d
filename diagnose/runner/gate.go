package runner

import (
	"context"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Reasons of a repair that waits because of an error. The worker retries these soon.
const (
	ReasonGateFailed     = "GateFailed"     // the gate could not decide
	ReasonIntentNotSaved = "IntentNotSaved" // the repair could not be announced before it is made
)

// Gate decides on repairs. It is asked before each repair, and again when a run resumes after a
// wait or a restart. It is never asked for a Collect or a Check.
type Gate interface {
	// Allow decides whether a repair may run now. On an error the run waits.
	Allow(ctx context.Context, a *Action) (Decision, error)
}

// Action is a repair that is due.
type Action struct {
	Diagnosis string // its ID
	ID        int    // of the graph's node
	Operation string
	Started   time.Time // when the run began; later than a repair of a run whose checkpoint is lost
}

// Decision is the answer of a [Gate].
type Decision struct {
	// Verb is what happens with the repair. Only Wait leaves it open: the run pauses, and asks
	// again when it is executed again. An unknown verb counts as Wait.
	Verb    v1alpha1.RemediationVerb
	Reason  string // a word, as in the condition RemediationAllowed: "ObserveOnly"
	Message string // "policy default: Observe"
	// Elsewhere: a Run is made elsewhere, and never here. The run waits for the end of the repair,
	// and records its Outcome as the node's.
	Elsewhere bool
	Outcome   *v1alpha1.RemediationOutcome // nil: not known yet
}

// hasEnded reports whether a repair that is made elsewhere has a final outcome.
func hasEnded(o *v1alpha1.RemediationOutcome) bool {
	return o != nil && (o.State == v1alpha1.ResultSucceeded || o.State == v1alpha1.ResultFailed || o.State == v1alpha1.ResultUnknown)
}

// takeOver records an outcome as the node's, within the bounds for operations. The outcome's times
// are by another machine's clock; by the node's clock the repair ends when the node receives the
// outcome.
func (r *Record) takeOver(o *v1alpha1.RemediationOutcome) {
	r.State, r.Message, r.Attempts = o.State, oneLine(o.Message), 1
	r.Results, r.Truncated = bound(o.Values)
	if o.State != v1alpha1.ResultSucceeded {
		r.Reason = string(o.State)
	}
	if o.CompletionTime != nil {
		r.Duration = max(0, o.CompletionTime.Sub(o.StartTime.Time))
	}
	r.Start = time.Now().Add(-r.Duration)
}
