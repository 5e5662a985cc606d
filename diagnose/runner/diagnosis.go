package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"time"

	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Operation is what a node runs: a built-in, a web server or a script. It may be used by several
// goroutines at once.
type Operation struct {
	Effect operation.Effect
	// Run runs the operation once. It returns a [*operation.Refuted] if a Check is negative, and
	// another error if the operation failed. It must return soon after ctx is done. nil: the
	// operation is not resolved.
	Run func(ctx context.Context, in *Inputs) (operation.Output, error)
}

// Inputs are the inputs of one run of an operation, which owns them.
type Inputs struct {
	// Parameters are the parameters of the diagnosis. Results are the results of the node's
	// dependences; if names collide, the later dependence in the node's list wins. Parameters
	// take precedence over Results, and an operation's own fixed parameters over both.
	Parameters, Results map[string]string
	Artifacts           operation.Artifacts
	Log                 *slog.Logger
}

// Builtin returns a built-in with fixed parameters as an [Operation].
func Builtin(b *operation.Builtin, fixed map[string]string) Operation {
	return Operation{b.Effect, func(ctx context.Context, in *Inputs) (operation.Output, error) {
		values, err := b.Fill(fixed, in.Parameters, in.Results)
		if err != nil {
			return operation.Output{}, err
		}
		return b.Do(ctx, &operation.Call{Parameters: values, Artifacts: in.Artifacts, Log: in.Log})
	}}
}

// Func returns an operation that is not a built-in (a web server, a script) as an [Operation]. It
// gets all inputs as parameters: the parameters of the diagnosis, and the results of dependences
// whose names don't collide with these.
func Func(effect operation.Effect, run func(context.Context, *operation.Call) (operation.Output, error)) Operation {
	return Operation{effect, func(ctx context.Context, in *Inputs) (operation.Output, error) {
		values := operation.Values{}
		maps.Copy(values, in.Results)
		maps.Copy(values, in.Parameters)
		return run(ctx, &operation.Call{Parameters: values, Artifacts: in.Artifacts, Log: in.Log})
	}}
}

// Step configures how a node's operation is run.
type Step struct {
	Operation Operation
	Timeout   time.Duration // of one attempt; 0: DefaultTimeout
	// Retries is how often a failed Collect or Check is retried. A refuted Check is not retried,
	// nor is a Remediate.
	Retries    int
	Backoff    time.Duration // before the first retry, doubled for each further one; 0: 1 s
	MaxBackoff time.Duration // upper bound of Backoff; 0: 30 s
	// Folder is where the node's results are also stored, from its Operation's
	// spec.storage.hostPath.path; empty: only in checkpoint and artifacts.
	Folder string
}

// DefaultTimeout is the timeout of an attempt if a Step has none.
const DefaultTimeout = 30 * time.Second

// Diagnosis is the input of [Runner.Execute].
type Diagnosis struct {
	// ID is the object's UID: unique, and the same after a restart. It has letters, digits, '.',
	// '_' and '-', at most 128.
	ID         string
	Tenant     string // the namespace it belongs to; empty: the node's own
	Graph      *graph.Graph
	Steps      []Step // by node id of the graph; that of the start node is unused
	Parameters map[string]string
	// Intended are nodes with an intent and no outcome in the API. They matter if the checkpoint
	// was lost with the disk: then they become Unknown and don't run.
	Intended []int
	// MayRepair is set if the graph that the run began with has a repair. It matters if the
	// checkpoint can't be read: then the run does not start over, even if Graph has none.
	MayRepair bool

	cancelled *Cancelled // set if it was cancelled while queued
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ValidID reports whether a run can have this ID. Such an ID can't lead out of the checkpoint folder.
func ValidID(id string) bool { return validID.MatchString(id) }

func (d *Diagnosis) check() error {
	var errs []error
	if !ValidID(d.ID) {
		errs = append(errs, fmt.Errorf("id %.140q: want 1 to 128 letters, digits, '.', '_', '-'", d.ID))
	}
	if d.Graph == nil {
		return errors.Join(append(errs, errors.New("no graph"))...)
	}
	if len(d.Steps) != d.Graph.Len() {
		return errors.Join(append(errs, fmt.Errorf("%d steps for %d nodes", len(d.Steps), d.Graph.Len()))...)
	}
	for id := 1; id < len(d.Steps); id++ {
		switch s := &d.Steps[id]; {
		case s.Operation.Run == nil:
			errs = append(errs, fmt.Errorf("node %d: operation %.80q is not resolved", id, d.Graph.Node(id).Operation))
		case s.Timeout < 0 || s.Retries < 0 || s.Backoff < 0 || s.MaxBackoff < 0:
			errs = append(errs, fmt.Errorf("node %d: a timeout, number of retries or backoff is negative", id))
		}
	}
	for _, id := range d.Intended {
		if id < 1 || id >= d.Graph.Len() {
			errs = append(errs, fmt.Errorf("intended: there is no node %d", id))
		}
	}
	return errors.Join(errs...)
}

// repairs reports whether a node changes something.
func (d *Diagnosis) repairs(id int) bool {
	return d.Steps[id].Operation.Effect == operation.Remediate
}
