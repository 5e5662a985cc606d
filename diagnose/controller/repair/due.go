package repair

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// due is a repair that a Diagnosis waits for, or that is being made.
type due struct {
	id        int
	operation string // its name
	spec      *v1alpha1.OperationSpec
	digest    v1alpha1.Digest
	target    string   // what it changes, in words
	later     []string // operations that come after it

	builtin *operation.Builtin // the built-in to run; nil: the node's agent makes the repair
	kind    actionKind
	values  operation.Values
	invalid error // why the values are invalid
}

// unplanned is the error of a repair that can't be decided on because its plan can't be determined.
type unplanned struct{ err error }

func (u *unplanned) Error() string { return u.err.Error() }

// due returns the repair of a node of the graph. An error is an [*unplanned], or temporary.
func (r *reconciler) due(ctx context.Context, d *v1alpha1.Diagnosis, id int) (*due, error) {
	set := &v1alpha1.OperationSet{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: d.Spec.OperationSet}, set); err != nil {
		if apierrors.IsNotFound(err) {
			err = &unplanned{fmt.Errorf("there is no OperationSet %s", d.Spec.OperationSet)}
		}
		return nil, err
	}
	c, failed := r.resolver(ctx)
	g, err := resolve.Graph(c, set)
	switch {
	case *failed != nil:
		return nil, *failed
	case err != nil:
		return nil, &unplanned{err}
	case id < 1 || id >= g.Len():
		return nil, &unplanned{fmt.Errorf("OperationSet %s has no node %d", set.Name, id)}
	}
	node := g.Node(id)
	out := &due{id: id, operation: node.Operation, spec: c.Spec(node.Operation), later: later(g, id)}
	effect := c.Effect(node.Operation)
	switch {
	case *failed != nil:
		return nil, *failed
	case out.spec == nil:
		return nil, &unplanned{fmt.Errorf("no Operation and no built-in is named %.80q", node.Operation)}
	case effect != v1alpha1.EffectRemediate:
		return nil, &unplanned{fmt.Errorf("operation %s is not a repair: its effect is %.20q", node.Operation, effect)}
	}
	plan, err := policy.PlanOf(d, id, node.Operation, out.spec, node.Dependences)
	if err != nil {
		return nil, &unplanned{err}
	}
	if out.digest, err = plan.Digest(); err != nil {
		return nil, &unplanned{err}
	}
	r.fill(d, out, &plan.Steps[0])
	return out, nil
}

// later returns the operations that come after a node of a graph.
func later(g *graph.Graph, id int) []string {
	var out []string
	after := map[int]bool{id: true}
	for _, n := range g.Order() {
		if !after[n] {
			continue
		}
		for _, to := range g.Node(n).To {
			out = append(out, g.Node(to).Operation)
			after[to] = true
		}
	}
	return out
}

// resolver resolves names of operations from the cache. If a read fails, failed points to the
// error.
func (r *reconciler) resolver(ctx context.Context) (c resolve.Config, failed *error) {
	failed = new(error)
	return resolve.Config{Builtins: r.builtins, Operation: func(name string) *v1alpha1.Operation {
		op := &v1alpha1.Operation{}
		switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, op); {
		case err == nil:
			return op
		case !apierrors.IsNotFound(err):
			*failed = err
		}
		return nil
	}}, failed
}

// fill sets the built-in that the controller runs, and its values.
func (r *reconciler) fill(d *v1alpha1.Diagnosis, out *due, step *policy.Step) {
	out.target = "node " + d.Spec.NodeName
	given := out.spec.Processor.Builtin
	if given == nil {
		return
	}
	b, ok := operation.Lookup(r.builtins, given.Name)
	if !ok || !b.ByController {
		return
	}
	out.builtin = b
	out.kind = actionKinds()[b.Name]
	about := map[string]string{}
	if p := d.Pod(); p.Name != "" {
		about["podNamespace"], about["podName"] = p.Namespace, p.Name
	}
	out.values, out.invalid = b.Fill(given.Parameters, step.Parameters, step.Results, about)
	out.target = display.Bounded(out.kind.target(d.Spec.NodeName, out.values), maxTarget)
}

const maxTarget = 256 // limit of a plan's step

// call returns the repair as input for [Actions].
func (u *due) call(d *v1alpha1.Diagnosis, o, before *v1alpha1.RemediationOutcome) *Call {
	c := &Call{Builtin: u.builtin.Name, Values: u.values, Diagnosis: d, Before: before}
	if o != nil {
		c.Began = o.StartTime.Time
	}
	return c
}
