package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// Config has what operations are resolved from.
type Config struct {
	Builtins []operation.Builtin // from [catalog.All]
	// Operation returns the Operation with a name, or nil. Names are all names of Operations, for
	// suggestions when a name is mistyped.
	Operation func(name string) *v1alpha1.Operation
	Names     []string
	// Scripts runs scripts. If nil, scripts are disabled and fail.
	Scripts *remote.Scripts
	// Secret returns the data of a Secret in the system namespace (tls.crt, tls.key, ca.crt). It is
	// called each time an operation runs, so that renewed certificates take effect. nil: there is
	// no cluster.
	Secret func(ctx context.Context, name string) (map[string][]byte, error)
}

// Of returns a Config for a list of Operations.
func Of(operations []*v1alpha1.Operation, builtins []operation.Builtin) Config {
	byName := make(map[string]*v1alpha1.Operation, len(operations))
	c := Config{Builtins: builtins, Operation: func(name string) *v1alpha1.Operation { return byName[name] }}
	for _, o := range operations {
		byName[o.Name] = o
		c.Names = append(c.Names, o.Name)
	}
	return c
}

// AllNames returns the names of all Operations and built-ins.
func (c *Config) AllNames() []string { return slices.Concat(c.Names, c.builtinNames()) }

func (c *Config) builtinNames() []string {
	names := make([]string, len(c.Builtins))
	for i := range names {
		names[i] = c.Builtins[i].Name
	}
	return names
}

// Plan is an OperationSet that is ready to run.
type Plan struct {
	Graph *graph.Graph
	// Steps are indexed by the ids of the graph's nodes. The start's step is unused.
	Steps []runner.Step
	// Scripts are the ids of the nodes that run a script.
	Scripts []int
	// ByController are the ids of the nodes whose operation only the cluster's controller runs.
	ByController []int

	inputs []input // by node
}

// Effect returns the effect of a node; empty for the start.
func (p *Plan) Effect(id int) operation.Effect { return p.Steps[id].Operation.Effect }

// Graph returns the graph of an OperationSet, including the dependences that its Operations
// declare. It does not report unknown names; [Set] does. Its error is [Faults].
func Graph(c Config, set *v1alpha1.OperationSet) (*graph.Graph, error) {
	g, err := graph.Build(nodes(&set.Spec))
	if err == nil {
		g, err = g.Require(func(name string) []string {
			if op := c.object(name); op != nil {
				return op.Spec.Dependences
			}
			return nil
		})
	}
	if err != nil {
		return nil, ofGraph(set, err)
	}
	return g, nil
}

// nodes returns the adjacency list of an OperationSet.
func nodes(spec *v1alpha1.OperationSetSpec) []graph.Node {
	out := make([]graph.Node, len(spec.AdjacencyList))
	for i := range out {
		n := &spec.AdjacencyList[i]
		out[i] = graph.Node{ID: int(n.ID), To: ints(n.To), Operation: n.Operation, Dependences: ints(n.Dependences)}
	}
	return out
}

func ints(in []int32) []int {
	var out []int
	for _, v := range in {
		out = append(out, int(v))
	}
	return out
}

func (c *Config) object(name string) *v1alpha1.Operation {
	if c.Operation == nil {
		return nil
	}
	return c.Operation(name)
}

// Effect returns the effect of the operation with a name; empty: unknown.
func (c *Config) Effect(name string) operation.Effect {
	op := c.object(name)
	if op != nil && op.Spec.Processor.Builtin == nil {
		return op.Spec.DeclaredEffect()
	}
	if op != nil {
		name = op.Spec.Processor.Builtin.Name
	}
	if b, ok := operation.Lookup(c.Builtins, name); ok {
		return b.Effect
	}
	return ""
}

// Spec returns the spec of the named Operation, or for a built-in without an object the minimal
// spec. Agent and controller both make the plan of a repair from it, so that they compute the same
// digest. It returns nil for an unknown name.
func (c *Config) Spec(name string) *v1alpha1.OperationSpec {
	if op := c.object(name); op != nil {
		return &op.Spec
	}
	if _, ok := operation.Lookup(c.Builtins, name); ok {
		return &v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: name}}}
	}
	return nil
}

// Set resolves an OperationSet. Its error is [Faults].
func Set(c Config, set *v1alpha1.OperationSet) (*Plan, error) {
	r := &resolver{c: c, set: set, done: map[string]resolved{}}
	g, err := Graph(c, set)
	r.faults, _ = errors.AsType[Faults](err)
	n := len(set.Spec.AdjacencyList)
	p := &Plan{Graph: g, Steps: make([]runner.Step, n), inputs: make([]input, n)}
	for i := range set.Spec.AdjacencyList {
		name := set.Spec.AdjacencyList[i].Operation
		if name == "" {
			continue // the start, or a mistake that the graph's check reports
		}
		o := r.operation(i, name)
		p.Steps[i], p.inputs[i] = o.step, o.input
		if o.input.script {
			p.Scripts = append(p.Scripts, i)
		}
		if b := o.input.builtin; b != nil && b.ByController {
			p.ByController = append(p.ByController, i)
		}
	}
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	return p, nil
}

// resolved is what an operation's name resolves to.
type resolved struct {
	step  runner.Step
	input input
}

type resolver struct {
	c      Config
	set    *v1alpha1.OperationSet
	done   map[string]resolved // by name, so that an Operation's mistakes are reported once
	faults Faults
}

func (r *resolver) wrong(reason string, object manifest.Object, field, format string, args ...any) {
	r.faults = append(r.faults, &Fault{Reason: reason, Object: object, Field: field, Message: fmt.Sprintf(format, args...)})
}

// operation resolves the name of the node at an index of the adjacency list.
func (r *resolver) operation(index int, name string) resolved {
	if o, ok := r.done[name]; ok {
		return o
	}
	var o resolved
	if op := r.c.object(name); op != nil {
		o = r.object(op)
	} else if b, ok := operation.Lookup(r.c.Builtins, name); ok {
		o = resolved{step: runner.Step{Operation: runner.Builtin(b, nil)}, input: input{builtin: b}}
	} else {
		r.wrong(v1alpha1.ReasonUnknownOperation, r.set, fmt.Sprintf("spec.adjacencyList[%d].operation", index),
			"node %d: no Operation or built-in is named %.80q%s", index, name, document.Suggest(name, r.c.AllNames()))
		return o // not cached: it is reported at each node
	}
	r.done[name] = o
	return o
}

// object resolves an Operation.
func (r *resolver) object(op *v1alpha1.Operation) resolved {
	o := resolved{step: runner.Step{
		Timeout: time.Duration(cmp.Or(op.Spec.Processor.TimeoutSeconds, v1alpha1.DefaultTimeoutSeconds)) * time.Second,
	}}
	if retry := op.Spec.Retry; retry != nil {
		o.step.Retries, o.step.Backoff, o.step.MaxBackoff = int(retry.Limit), retry.Backoff.Duration, retry.MaxBackoff.Duration
	}
	if s := op.Spec.Storage; s != nil && s.HostPath != nil {
		o.step.Folder = s.HostPath.Path
		if err := artifact.CheckFolder(s.HostPath.Path); err != nil {
			r.wrong(v1alpha1.ReasonInvalidParameter, op, "spec.storage.hostPath.path", "%s", err)
		}
	}
	switch p := &op.Spec.Processor; {
	case p.Builtin != nil:
		r.builtin(op, p.Builtin, &o)
	case p.HTTPServer != nil:
		r.server(op, p.HTTPServer, &o)
	case p.ScriptRunner != nil:
		r.script(op, p.ScriptRunner, &o)
	default:
		r.wrong(v1alpha1.ReasonUnknownOperation, op, "spec.processor", "want one of builtin, httpServer, scriptRunner")
	}
	return o
}
