package runner

import "context"

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
)

// Decision is what a [Gate] says.
type Decision struct {
	Verb    Verb
	Reason  string // a word, as in the condition RemediationAllowed: "ObserveOnly"
	Message string // "policy default: Observe"
}
