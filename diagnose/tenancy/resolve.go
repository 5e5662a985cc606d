package tenancy

import (
	"context"
	"errors"
	"fmt"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// Resolve is [resolve.Set] for a tenant's Diagnosis about a pod: what it returns can look
// at nothing else. It returns the parameters that the Diagnosis is to be run with, too. The
// error is [Refusals], with all reasons, or that of [resolve.Set].
func Resolve(c resolve.Config, set *v1alpha1.OperationSet, d *v1alpha1.Diagnosis, pod Pod) (*resolve.Plan, map[string]string, error) {
	var r Refusals
	r.target(d)
	r.operations(&c, set)
	r.pod(d, &pod)
	parameters, err := Parameters(d.Spec.Parameters, pod)
	if wrong, ok := errors.AsType[Refusals](err); ok {
		r = append(r, wrong...)
	}
	if err := r.err(); err != nil {
		return nil, nil, err
	}
	plan, err := Plan(c, set, d, parameters)
	return plan, parameters, err
}

// Plan is the part of [Resolve] that needs no pod: the parameters are those that
// [Parameters] returned for it, at an earlier time maybe. A run that goes on after a restart
// keeps those it has begun with.
func Plan(c resolve.Config, set *v1alpha1.OperationSet, d *v1alpha1.Diagnosis, parameters map[string]string) (*resolve.Plan, error) {
	var r Refusals
	r.target(d)
	r.operations(&c, set)
	if parameters["podUID"] == "" || parameters["podNamespace"] != d.Namespace || parameters["address"] == "" {
		r.add("the parameters are not those of a pod of namespace %s", shown(d.Namespace))
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	c.Builtins = Builtins(c.Builtins, parameters)
	c.Scripts, c.Secret, c.AllowLinkLocal = nil, nil, false
	return resolve.Set(c, set)
}

// pod holds the pod that was found against the one that was asked for.
func (r *Refusals) pod(d *v1alpha1.Diagnosis, pod *Pod) {
	ref := d.Spec.PodReference
	if ref == nil {
		return // target has added the refusal
	}
	if pod.Namespace != d.Namespace || pod.Name != ref.Name || pod.UID == "" {
		r.add("pod %s/%s is not the one that is asked for", shown(pod.Namespace), shown(pod.Name))
	}
	if d.Spec.NodeName != "" && d.Spec.NodeName != pod.Node {
		r.add("pod %s is not on node %s", shown(ref.Name), shown(d.Spec.NodeName))
	}
}

// Builtins returns built-ins as a tenant's Diagnosis may run them: of a call's values,
// those that name what is looked at are replaced by those of parameters, which
// [Parameters] returned. As that is done behind [operation.Builtin.Fill], neither an
// Operation's fixed parameters nor results of other operations can bring another. One that
// is not made for tenants fails.
func Builtins(all []operation.Builtin, parameters map[string]string) []operation.Builtin {
	out := make([]operation.Builtin, len(all))
	for i := range all {
		b := all[i]
		out[i] = b
		run := b.Run
		if !b.TenantSafe || b.Effect != operation.Collect || run == nil {
			out[i].Run = func(context.Context, *operation.Call) (operation.Output, error) {
				return operation.Output{}, fmt.Errorf("%s is not for a namespace's user", b.Name)
			}
			continue
		}
		out[i].Run = func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			own := *call
			own.Parameters = confined(&b, call.Parameters, parameters)
			return run(ctx, &own)
		}
	}
	return out
}
