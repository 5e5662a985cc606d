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

// Verb is what is done with a repair.
type Verb string

// Verbs. The zero value is none of them, and is taken as Wait.
const (
	Allowed  Verb = "Allowed"  // it runs
	WouldRun Verb = "WouldRun" // only observed: it counts as done without effect
	Withheld Verb = "Withheld" // not allowed now, for good in this run; counts like WouldRun
	Wait     Verb = "Wait"     // the run pauses, and is asked again when it is executed again
	// Made: it was made elsewhere, and has ended. What came of it is noted as the node's,
	// and nothing runs.
	Made Verb = "Made"
)

// Decision is what a [Gate] says.
type Decision struct {
	Verb    Verb
	Reason  string // a word, as in the condition RemediationAllowed: "ObserveOnly"
	Message string // "policy default: Observe"
	// Outcome is what came of a repair that was made elsewhere, of [Made] alone. Without
	// one that has ended the run waits.
	Outcome *Outcome
}

// Outcome is what came of a repair that another has made: the controller, of those that
// change objects of the API.
type Outcome struct {
	State   v1alpha1.ResultState // Succeeded, Failed or Unknown
	Message string
	Results map[string]string
	// Took is how long it took. When that was its maker's clock says, which is not the
	// node's.
	Took time.Duration
}

// ended reports whether nothing more comes of it.
func (o *Outcome) ended() bool {
	return o != nil && (o.State == v1alpha1.ResultSucceeded || o.State == v1alpha1.ResultFailed || o.State == v1alpha1.ResultUnknown)
}

// into notes an outcome as the node's: for its clock the repair ends when the node gets to
// know of that. It is kept to the same bounds as an operation's.
func (o *Outcome) into(rec *Record) {
	rec.State, rec.Message, rec.Attempts = o.State, oneLine(o.Message), 1
	rec.Results, rec.Truncated = bound(o.Results)
	if o.State != v1alpha1.ResultSucceeded {
		rec.Reason = string(o.State)
	}
	rec.Duration = max(0, o.Took)
	rec.Start = time.Now().Add(-rec.Duration)
}
