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

// Operation is what a node runs: a built-in, a web server or a script, with what its
// object says of it. It may be used by several goroutines at once.
type Operation struct {
	Effect operation.Effect
	// Run does it once. An error is a [*operation.Refuted] where a Check answers no, else
	// why it could not be done. It must end soon after ctx is done. nil: it is not resolved.
	Run func(ctx context.Context, in *Inputs) (operation.Output, error)
}

// Inputs are what one run of an operation is given. They are its own.
type Inputs struct {
	// Parameters are the diagnosis', Results those of the node's dependences, the later
	// ones in the node's list before the earlier. An operation's own fixed parameters come
	// before both, and Parameters before Results.
	Parameters, Results map[string]string
	Artifacts           operation.Artifacts
	Log                 *slog.Logger
}

// Builtin returns a built-in with the parameters that are fixed for it as an [Operation].
func Builtin(b *operation.Builtin, fixed map[string]string) Operation {
	return Operation{b.Effect, func(ctx context.Context, in *Inputs) (operation.Output, error) {
		if b.Run == nil {
			return operation.Output{}, fmt.Errorf("%s: it changes objects of the API, which the controller alone does", b.Name)
		}
		values, err := b.Fill(fixed, in.Parameters, in.Results)
		if err != nil {
			return operation.Output{}, err
		}
		return b.Do(ctx, &operation.Call{Parameters: values, Artifacts: in.Artifacts, Log: in.Log})
	}}
}

// Func returns what is no built-in (a web server, a script) as an [Operation]. Its call's
// parameters are all inputs: of each name the first of the diagnosis' parameters and the
// results of dependences.
func Func(effect operation.Effect, run func(context.Context, *operation.Call) (operation.Output, error)) Operation {
	return Operation{effect, func(ctx context.Context, in *Inputs) (operation.Output, error) {
		values := operation.Values{}
		maps.Copy(values, in.Results)
		maps.Copy(values, in.Parameters)
		return run(ctx, &operation.Call{Parameters: values, Artifacts: in.Artifacts, Log: in.Log})
	}}
}

// Step is how a node's operation is run.
type Step struct {
	Operation Operation
	Timeout   time.Duration // of one try; 0: DefaultTimeout
	// Retries is how often a Collect or Check that failed is tried again. One that answers
	// no is not, nor is a Remediate.
	Retries    int
	Backoff    time.Duration // before the first new try, doubled from one to the next; 0: a second
	MaxBackoff time.Duration // what it does not grow beyond; 0: 30 s
	// Folder is where the node keeps what comes of it, as its Operation's
	// spec.storage.hostPath.path says; empty: nowhere but in checkpoint and artifacts.
	Folder string
}

// DefaultTimeout is the time of a try where none is said.
const DefaultTimeout = 30 * time.Second

// Diagnosis is what is executed.
type Diagnosis struct {
	// ID is the same after a restart, and no other diagnosis' ever: the object's UID. It
	// has letters, digits, '.', '_' and '-', at most 128.
	ID         string
	Node       string // where it runs; repairs of one node are made one at a time
	Tenant     string // the namespace that it is of; empty: the node's own
	Graph      *graph.Graph
	Steps      []Step // by the ids of the graph's nodes; that of the start is not used
	Parameters map[string]string
	// Intended are nodes for which the API has an intent without an outcome. They matter
	// where the checkpoint is gone with the disk: then they are Unknown rather than run.
	Intended []int

	cancelled *Cancelled // while it waited in a pool
}

// validID keeps names of checkpoints inside their folder.
func validID(id string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`).MatchString(id)
}

func (d *Diagnosis) check() error {
	var errs []error
	if !validID(d.ID) {
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
			errs = append(errs, fmt.Errorf("node %d: a time-out, number of tries or pause is negative", id))
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
