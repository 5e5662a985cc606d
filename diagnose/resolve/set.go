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

// Config is what operations are made of besides their objects.
type Config struct {
	Builtins []operation.Builtin // of [catalog.All]
	// Operation returns the object of a name, nil where there is none; Names those that
	// there are, for a name that is mistyped.
	Operation func(name string) *v1alpha1.Operation
	Names     []string
	// Scripts runs scripts; nil: each fails, as scripts are off.
	Scripts *remote.Scripts
	// Secret returns what a Secret of the system namespace has (tls.crt, tls.key, ca.crt).
	// It is asked each time that an operation runs, so that what was renewed is taken; nil:
	// there is no cluster.
	Secret func(ctx context.Context, name string) (map[string][]byte, error)
	// AllowLinkLocal lets web servers have link-local addresses, where metadata services
	// of clouds are.
	AllowLinkLocal bool
}

// Of returns a Config with Operations.
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

// Plan is an OperationSet that can be run.
type Plan struct {
	Graph *graph.Graph
	// Steps are by the ids of the graph's nodes; that of the start is not used.
	Steps []runner.Step
	// Scripts are the nodes that run a script.
	Scripts []int
	// ByController are the nodes whose operation the controller of a cluster makes.
	ByController []int

	inputs []input // by node
}

// Effect returns what a node may change; empty: the start.
func (p *Plan) Effect(id int) operation.Effect { return p.Steps[id].Operation.Effect }

// Graph returns the graph of an OperationSet, with the dependences that Operations have
// of themselves. Names that stand for nothing are not looked at: [Set] does. Its error is
// [Faults].
func Graph(c Config, set *v1alpha1.OperationSet) (*graph.Graph, error) {
	g, err := graph.Build(runner.Nodes(&set.Spec))
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

func (c *Config) object(name string) *v1alpha1.Operation {
	if c.Operation == nil {
		return nil
	}
	return c.Operation(name)
}

// Effect returns what an operation may change; empty: it is not known.
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

// Spec returns what an operation is: that of its object, or for a built-in without one the
// least that names it. Whoever makes a plan of a repair takes it from here, so that agent
// and controller come to the same digest. nil: nothing has the name.
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
	if faults, ok := errors.AsType[Faults](err); ok {
		r.faults = faults
	} else if err != nil {
		return nil, err
	}
	n := len(set.Spec.AdjacencyList)
	p := &Plan{Graph: g, Steps: make([]runner.Step, n), inputs: make([]input, n)}
	for i := range set.Spec.AdjacencyList {
		name := set.Spec.AdjacencyList[i].Operation
		if name == "" {
			continue // the start, or the graph's mistake
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

// resolved is what a name stands for.
type resolved struct {
	step  runner.Step
	input input
}

type resolver struct {
	c      Config
	set    *v1alpha1.OperationSet
	done   map[string]resolved // by name: an Operation's mistakes are reported once
	faults Faults
}

func (r *resolver) wrong(reason string, object manifest.Object, field, format string, args ...any) {
	r.faults = append(r.faults, &Fault{Reason: reason, Object: object, Field: field, Message: fmt.Sprintf(format, args...)})
}

// operation resolves the name at a place of the list.
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
			"node %d: no Operation and no built-in is named %.80q%s", index, name, document.Suggest(name, r.c.AllNames()))
		return o // reported at each node
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
		r.wrong(v1alpha1.ReasonUnknownOperation, op, "spec.processor", "none of builtin, httpServer and scriptRunner is given")
	}
	return o
}
