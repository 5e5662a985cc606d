package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// goOn continues a repair whose outcome is recorded as Running: one that takes several passes, or
// one whose end was not recorded.
//
// The status alone is not trusted, because nodes' agents write it too. The slot proves that the
// controller has begun the repair: only the controller can take one.
func (l *look) goOn(ctx context.Context, id int) error {
	if l.d.Namespace != l.config.Namespace {
		return nil
	}
	rem := l.d.Status.Remediation(id)
	if rem == nil || rem.Outcome == nil || rem.Outcome.State != v1alpha1.ResultRunning {
		return nil // it has ended since
	}
	// From here on the API server rejects writes that another controller prepared before.
	if err := l.write(ctx, func(s *v1alpha1.DiagnosisStatus) { s.Remediation(id).Outcome.Holder = l.config.Holder }); err != nil {
		return err
	}
	u, err := l.due(ctx, l.d, id)
	if wrong, ok := errors.AsType[*unplanned](err); ok {
		return l.end(ctx, &due{id: id, operation: "repair"}, Progress{State: v1alpha1.ResultUnknown, Message: "it was under way, but its plan can no longer be determined: " + wrong.Error()})
	}
	if err != nil {
		return err
	}
	held, err := l.holdsSlot(ctx, u)
	if err != nil {
		return err
	}
	switch {
	case !held:
		return l.end(ctx, u, Progress{State: v1alpha1.ResultUnknown, Message: "not continued: no RemediationPolicy holds a slot for it; " + rem.Outcome.Message, Values: rem.Outcome.Values})
	case u.builtin == nil || u.invalid != nil || u.digest != rem.PlanDigest:
		return l.end(ctx, u, Progress{State: v1alpha1.ResultUnknown, Message: "it was under way, but the Operation or its parameters have changed since it was allowed"})
	case l.d.Spec.Cancel && rem.Outcome.Message != "":
		return l.end(ctx, u, Progress{State: v1alpha1.ResultFailed, Message: "cancelled: " + rem.Outcome.Message, Values: rem.Outcome.Values})
	}
	return l.pass(ctx, u, rem.Outcome)
}

// holdsSlot reports whether the Diagnosis holds a slot of its node for the repair. A slot of any
// policy is enough. A policy that was created or recreated, or that began to select the node, after
// the repair began has no slot for it, and must not stop it.
func (l *look) holdsSlot(ctx context.Context, u *due) (bool, error) {
	v, err := l.view(ctx)
	if err != nil {
		return false, err
	}
	ours, others, err := l.budget.Held(ctx, v.names, l.d.Spec.NodeName, l.d.UID, u.operation)
	return len(ours)+len(others) > 0, err
}

// patience is how long, beyond the repair's own timeout, a pass is retried while the API server
// does not answer.
const patience = time.Minute

// pass makes one pass of a repair and records the result. before is the outcome after the previous
// pass.
func (l *look) pass(ctx context.Context, u *due, before *v1alpha1.RemediationOutcome) error {
	o := l.d.Status.Remediation(u.id)
	if o == nil || o.Outcome == nil {
		return errors.New("can't record the start of the repair: the status is full")
	}
	call := u.call(l.d, o.Outcome, before.DeepCopy())
	call.Still = func(ctx context.Context) error { return l.still(ctx, u) }
	p, err := l.act(ctx, call)
	if err != nil {
		if l.config.Now().Before(call.Began.Add(u.values.Duration("timeout") + patience)) {
			return err // it is retried
		}
		p = Progress{State: v1alpha1.ResultUnknown, Message: "abandoned; unknown whether it was made: " + err.Error()}
	}
	if p.State != v1alpha1.ResultRunning {
		return l.end(ctx, u, p)
	}
	l.interest = interest{node: l.d.Spec.NodeName}
	l.again = max(p.Again, time.Millisecond)
	first := o.Outcome.Message == ""
	if err := l.write(ctx, func(s *v1alpha1.DiagnosisStatus) {
		o := s.Remediation(u.id).Outcome
		o.Message, o.Values = display.Bounded(p.Message, v1alpha1.MaxMessageBytes), bounded(p.Values)
	}); err != nil {
		return err
	}
	if first {
		l.reporter.record(l.d, l.nodeOf(ctx), normal, "RepairBegun", u.operation, u.operation+": "+p.Message)
	}
	return nil
}

// act makes the action's part of a pass. It takes at most two thirds of the remaining time; the rest
// is for recording the outcome.
func (l *look) act(ctx context.Context, call *Call) (Progress, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*2/3)
		defer cancel()
	}
	return l.actions.Do(ctx, call)
}

// still returns an error if the repair no longer belongs to this controller: after a partition
// another controller may have taken over, finished the repair and given the slot to another node. A
// change of the node after it was read is caught by the write's resourceVersion.
func (l *look) still(ctx context.Context, u *due) error {
	// Check the slots before the status: if the status still says Running afterwards, no slot had
	// been released.
	if held, err := l.holdsSlot(ctx, u); err != nil || !held {
		return cmp.Or(err, errors.New("no RemediationPolicy holds a slot for the repair"))
	}
	d := &v1alpha1.Diagnosis{}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(l.d), d); err != nil {
		return err
	}
	rem := d.Status.Remediation(u.id)
	if d.UID != l.d.UID || rem == nil || rem.PlanDigest != u.digest || rem.Outcome == nil || rem.Outcome.State != v1alpha1.ResultRunning {
		return errors.New("the repair has ended meanwhile")
	}
	if rem.Outcome.Holder != l.config.Holder {
		return fmt.Errorf("controller %s has taken over the repair", rem.Outcome.Holder)
	}
	return nil
}

// end records the outcome of a repair and begins its verification.
func (l *look) end(ctx context.Context, u *due, p Progress) error {
	now := metav1.NewMicroTime(l.config.Now())
	err := l.write(ctx, func(s *v1alpha1.DiagnosisStatus) {
		o := s.Remediation(u.id).Outcome
		o.State, o.Message, o.Values, o.CompletionTime = p.State, display.Bounded(p.Message, v1alpha1.MaxMessageBytes), bounded(p.Values), &now
		l.verifying(s, u.operation+" has ended and may still help")
	})
	if err != nil {
		return err
	}
	l.reportEnd(ctx, u.operation, u.kind.done, p.State, p.Message)
	if err := l.verify(ctx); err != nil {
		return err
	}
	return l.settle(ctx)
}

// reportEnd reports and counts the outcome of a repair.
func (l *look) reportEnd(ctx context.Context, operation, done string, state v1alpha1.ResultState, message string) {
	l.counts.repairs.WithLabelValues(operation, string(state)).Inc()
	kind, reason := normal, done
	switch {
	case state == v1alpha1.ResultUnknown:
		kind, reason = warning, "RepairUnknown"
	case state != v1alpha1.ResultSucceeded:
		kind, reason = warning, "RepairFailed"
	case reason == "":
		reason = "Repaired"
	}
	l.reporter.record(l.d, l.nodeOf(ctx), kind, reason, operation, operation+": "+message)
	l.config.Log.Info("repair ended", "diagnosis", l.d.Namespace+"/"+l.d.Name, "node", l.d.Spec.NodeName, "operation", operation, "state", string(state), "message", message)
}

// maxValues is how many result values an outcome has room for.
const maxValues = 16

// bounded truncates result values to the limits of an outcome.
func bounded(values map[string]string) map[string]v1alpha1.ResultValue {
	out := maps.Clone(values)
	for key, value := range out {
		out[key] = display.Bounded(value, v1alpha1.MaxResultBytes/maxValues)
	}
	return out
}

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
	inputs, err := r.withInputs(ctx, d, node.Dependences)
	if err != nil {
		return nil, err
	}
	plan, err := policy.PlanOf(inputs, id, node.Operation, out.spec, node.Dependences)
	if err != nil {
		return nil, &unplanned{err}
	}
	if out.digest, err = plan.Digest(); err != nil {
		return nil, &unplanned{err}
	}
	r.fill(d, out, &plan.Steps[0])
	return out, nil
}

// inputs are the results that the plan of a waiting repair depends on.
type inputs struct {
	of      types.UID
	results map[int]*v1alpha1.Result
}

// withInputs returns the Diagnosis with the values of the results that a repair depends on, which the
// cache lacks. They are read once and kept while the repair waits, because each change of a budget
// reconciles the repair again.
func (r *reconciler) withInputs(ctx context.Context, d *v1alpha1.Diagnosis, dependences []int) (*v1alpha1.Diagnosis, error) {
	if len(dependences) == 0 {
		return d, nil
	}
	key := client.ObjectKeyFromObject(d)
	r.mu.Lock()
	have := r.inputs[key]
	r.mu.Unlock()
	known := func(id int) bool {
		is, was := d.Status.Result(id), have.results[id]
		return have.of == d.UID && was != nil && is != nil && is.State == was.State && is.StartTime.Equal(was.StartTime)
	}
	if !slices.ContainsFunc(dependences, func(id int) bool { return !known(id) }) {
		return have.in(d), nil
	}
	live := &v1alpha1.Diagnosis{}
	if err := r.live.Get(ctx, key, live); apierrors.IsNotFound(err) || err == nil && live.UID != d.UID {
		return nil, errGone
	} else if err != nil {
		return nil, err
	}
	have = inputs{of: d.UID, results: map[int]*v1alpha1.Result{}}
	for _, id := range dependences {
		if res := live.Status.Result(id); res != nil {
			have.results[id] = res.DeepCopy() // not a part of the array of all results
		}
	}
	r.mu.Lock()
	if _, waits := r.interest[key]; waits {
		r.inputs[key] = have
	}
	r.mu.Unlock()
	return have.in(d), nil
}

// in returns a copy of a Diagnosis with these results.
func (i *inputs) in(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	out := *d
	out.Status.Results = slices.Clone(d.Status.Results)
	for k := range out.Status.Results {
		if res := i.results[int(out.Status.Results[k].ID)]; res != nil {
			out.Status.Results[k] = *res
		}
	}
	return &out
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
