package runner

import (
	"context"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Gate decides on repairs. It is asked before each, never for what only collects or
// checks, and again where a run goes on after a wait or a restart.
type Gate interface {
	// Allow says whether a repair may run now. An error means that it can't say now: the
	// run waits.
	Allow(ctx context.Context, a *Action) (Decision, error)
}

// Action is a repair that is due.
type Action struct {
	Diagnosis string // its ID
	Node      string // the diagnosis'
	ID        int    // of the graph's node
	Operation string
	// Path is the one being tried, up to this node; what is on it has succeeded.
	Path []int
	// Parameters and Results are what the operation will be given.
	Parameters, Results map[string]string
}

// Decision is what a [Gate] says.
type Decision struct {
	// Verb says what is done with the repair. Only Wait leaves it open: the run pauses, and asks
	// again when it is executed again. An unknown verb counts as Wait.
	Verb    v1alpha1.RemediationVerb
	Reason  string // a word, as in the condition RemediationAllowed: "ObserveOnly"
	Message string // "policy default: Observe"
	// Elsewhere: a Run is made elsewhere, and never here. What came of it, the Outcome, is noted
	// as the node's. The run waits until it has ended.
	Elsewhere bool
	Outcome   *v1alpha1.RemediationOutcome // nil: nothing is known of it yet
}

// hasEnded reports whether nothing more comes of a repair that was made elsewhere.
func hasEnded(o *v1alpha1.RemediationOutcome) bool {
	return o != nil && (o.State == v1alpha1.ResultSucceeded || o.State == v1alpha1.ResultFailed || o.State == v1alpha1.ResultUnknown)
}

// takeOver notes an outcome as the node's, within the same bounds as an operation's. Its times are
// by the clock of its maker: by the node's the repair ends when the node gets to know of it.
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
