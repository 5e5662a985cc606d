package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// prepare returns what to execute, or the end of a Diagnosis that can't be run. It returns neither
// if it has set when to try again. The lock is held.
func (w *Worker) prepare(e *entry, now time.Time) (*runner.Diagnosis, *runner.End) {
	known := w.c.Store.Objects()
	set := manifest.Named(known.OperationSets, e.Diagnosis.Spec.OperationSet)
	if set == nil {
		return nil, w.withoutSet(e, known, now)
	}
	config := w.resolver(known)
	var plan *resolve.Plan
	var err error
	tenant := ""
	if tenancy.Applies(e.Diagnosis, w.c.Namespace) {
		tenant = e.Diagnosis.Namespace
		plan, err = tenancy.Plan(config, set, e.Diagnosis, e.Parameters)
	} else {
		plan, err = resolve.Set(config, set)
	}
	if err != nil {
		return nil, w.refusal(e, reasonOf(err), err)
	}
	if e.Parameters == nil {
		e.Parameters = w.parameters(e.Diagnosis, plan)
		e.unsaved = true
	}
	e.plan, e.specs = plan, specsOf(&config, plan)
	if len(e.specs) > 0 && !e.MayRepair {
		e.MayRepair, e.unsaved = true, true
	}
	return &runner.Diagnosis{
		ID: e.ID, Tenant: tenant, Graph: plan.Graph, Steps: plan.Steps, Parameters: maps.Clone(e.Parameters),
		Intended: intended(e.latest, plan), MayRepair: e.MayRepair,
	}, nil
}

// reasonOf returns the reason why a set can't be run.
func reasonOf(err error) string {
	if _, tenant := errors.AsType[tenancy.Refusals](err); tenant {
		return v1alpha1.ReasonNotAllowed
	}
	return v1alpha1.ReasonOperationSetNotReady
}

// withoutSet returns the end of a Diagnosis whose OperationSet does not exist. It returns nil and
// waits while the store has not synced since the start, because the objects saved by the previous
// process may be older than the set. The lock is held.
func (w *Worker) withoutSet(e *entry, known *Objects, now time.Time) *runner.End {
	unknown := len(known.OperationSets) == 0 || !w.heard
	since := e.Taken
	switch {
	case w.started.After(since):
		since = w.started
	case since.After(now): // the clock was set back
		since = now
	}
	switch {
	case unknown && e.held.IsZero() && now.Sub(since) < holdFor:
		e.held = since.Add(holdFor)
	case unknown && now.Before(e.held):
	default:
		return w.refusal(e, v1alpha1.ReasonOperationSetNotFound, errors.New("there is no OperationSet "+e.Diagnosis.Spec.OperationSet))
	}
	return nil
}

// refusal returns the end of a Diagnosis that can't be run. The lock is held.
func (w *Worker) refusal(e *entry, reason string, err error) *runner.End {
	w.log.Warn("diagnosis is refused", "diagnosis", e.name().String(), "reason", reason, "error", err)
	return &runner.End{Phase: v1alpha1.PhaseFailed, Reason: reason, Message: err.Error(), At: time.Now()}
}

func (w *Worker) resolver(known *Objects) resolve.Config {
	c := resolve.Of(known.Operations, w.c.Builtins)
	c.Scripts, c.Secret = w.c.Scripts, w.c.Secret
	return c
}

// parameters returns the Diagnosis' parameters, and adds those of the node and pod that operations
// accept.
func (w *Worker) parameters(d *v1alpha1.Diagnosis, plan *resolve.Plan) map[string]string {
	out := map[string]string{}
	maps.Copy(out, d.Spec.Parameters)
	taken := plan.Parameters()
	give := func(name, value string) {
		if out[name] == "" && value != "" && slices.Contains(taken, name) {
			out[name] = value
		}
	}
	give("node", w.c.Node)
	if pod := d.Spec.PodReference; pod != nil {
		name := d.Pod()
		give("podNamespace", name.Namespace)
		give("podName", name.Name)
		give("container", pod.Container)
		// podUID would take precedence: a probe's network is not its pod's, so its trigger leaves the UID out.
		if out["netns"] == "" && trigger.PodUID(d) == "" {
			give("podUID", w.c.PodUID(name.Namespace, name.Name))
		}
	}
	return out
}

// intended returns the repairs that an earlier run of the Diagnosis, whose checkpoint is not on
// this node, has begun or made: they are not repeated.
func intended(latest *v1alpha1.Diagnosis, plan *resolve.Plan) []int {
	if latest == nil {
		return nil
	}
	var out []int
	add := func(id int) {
		if id > 0 && id < plan.Graph.Len() && repairs(plan, id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, r := range latest.Status.Results {
		switch r.State {
		case v1alpha1.ResultRunning, v1alpha1.ResultSucceeded, v1alpha1.ResultFailed, v1alpha1.ResultUnknown:
			add(int(r.ID))
		}
	}
	if c := latest.Status.Checkpoint; c != nil && c.Intent != nil {
		add(int(c.Intent.ID))
	}
	slices.Sort(out)
	return out
}

// specsOf returns the specs of the plan's repair operations, by name.
func specsOf(c *resolve.Config, plan *resolve.Plan) map[string]*v1alpha1.OperationSpec {
	out := map[string]*v1alpha1.OperationSpec{}
	for id := 1; id < plan.Graph.Len(); id++ {
		if name := plan.Graph.Node(id).Operation; repairs(plan, id) {
			out[name] = c.Spec(name)
		}
	}
	return out
}

// asksForPod reports whether the pod of a Diagnosis outside the system namespace must be looked up
// before any of its operations runs: that pod, and not the author, determines what the Diagnosis
// may access. The lock is held.
func (w *Worker) asksForPod(e *entry) bool {
	return tenancy.Applies(e.Diagnosis, w.c.Namespace) && e.Parameters == nil && e.End == nil && !e.Gone
}

// askForPod looks up the pod, and stores the parameters that follow from it.
func (w *Worker) askForPod(ctx context.Context, e *entry) {
	w.mu.Lock()
	d := e.Diagnosis
	w.mu.Unlock()
	parameters, reason, err := w.tenantParameters(ctx, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer wake(w.moved)
	switch {
	case ctx.Err() != nil && err != nil, errors.Is(err, ErrAway):
		w.isAway(ErrAway)
	case err == nil:
		e.Parameters, e.unsaved = parameters, true
	case reason == "": // sets or pods are not known yet
		e.retryAt = time.Now().Add(writeEvery)
	case !w.asksForPod(e): // it has ended meanwhile
	default:
		end := w.refusal(e, reason, err)
		e.finish(end.Phase, end.Reason, end.Message)
		wake(w.reported)
	}
}

// tenantParameters returns the parameters of a tenant's Diagnosis, or reason and error why it does
// not run. Without a reason, the error is temporary.
func (w *Worker) tenantParameters(ctx context.Context, d *v1alpha1.Diagnosis) (map[string]string, string, error) {
	if err := tenancy.Target(d); err != nil {
		return nil, v1alpha1.ReasonNotAllowed, err
	}
	known := w.c.Store.Objects()
	set := manifest.Named(known.OperationSets, d.Spec.OperationSet)
	if set == nil {
		err := errors.New("there is no OperationSet " + d.Spec.OperationSet)
		if len(known.OperationSets) == 0 && time.Since(d.CreationTimestamp.Time) < holdFor {
			return nil, "", err
		}
		return nil, v1alpha1.ReasonOperationSetNotFound, err
	}
	pod, err := w.c.TenantPod(ctx, d)
	switch {
	case errors.Is(err, ErrLater) && time.Since(d.CreationTimestamp.Time) < holdFor:
		return nil, "", err
	case errors.Is(err, ErrGone):
		return nil, v1alpha1.ReasonPodNotFound, errors.New("there is no pod " + d.Spec.PodReference.Name)
	case err != nil:
		return nil, v1alpha1.ReasonNotAllowed, err
	}
	parameters, err := tenancy.Resolve(w.resolver(known), set, d, pod)
	if err != nil {
		return nil, reasonOf(err), err
	}
	return parameters, "", nil
}
