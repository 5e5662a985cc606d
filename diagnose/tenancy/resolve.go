package tenancy

import (
	"context"
	"errors"
	"fmt"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// Resolve returns the parameters for a tenant's Diagnosis about a pod, so that its [Plan] can examine
// nothing else. The error is [Refusals] with all reasons, or that of [Plan].
func Resolve(c resolve.Config, set *v1alpha1.OperationSet, d *v1alpha1.Diagnosis, pod Pod) (map[string]string, error) {
	r := refusals(c, set, d)
	r.pod(d, &pod)
	parameters, err := Parameters(d.Spec.Parameters, pod)
	if wrong, ok := errors.AsType[Refusals](err); ok {
		r = append(r, wrong...)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	_, err = Plan(c, set, d, parameters)
	return parameters, err
}

// Plan is [resolve.Set] for a tenant's Diagnosis. parameters must come from [Parameters], perhaps
// from an earlier call: a run that is resumed after a restart keeps the parameters that it began
// with.
func Plan(c resolve.Config, set *v1alpha1.OperationSet, d *v1alpha1.Diagnosis, parameters map[string]string) (*resolve.Plan, error) {
	r := refusals(c, set, d)
	if parameters["podUID"] == "" || parameters["podNamespace"] != d.Namespace || parameters["address"] == "" {
		r.add("the parameters do not describe a pod of namespace %s", shown(d.Namespace))
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	c.Builtins = Builtins(c.Builtins, parameters)
	c.Scripts, c.Secret = nil, nil
	return resolve.Set(c, set)
}

// pod checks that the pod that was found is the requested one.
func (r *Refusals) pod(d *v1alpha1.Diagnosis, pod *Pod) {
	ref := d.Spec.PodReference
	if ref == nil {
		return // target has added the refusal
	}
	if pod.Namespace != d.Namespace || pod.Name != ref.Name || pod.UID == "" {
		r.add("pod %s/%s is not the requested one", shown(pod.Namespace), shown(pod.Name))
	}
	if d.Spec.NodeName != "" && d.Spec.NodeName != pod.Node {
		r.add("pod %s is not on node %s", shown(ref.Name), shown(d.Spec.NodeName))
	}
}

// Builtins returns built-ins restricted for a tenant's Diagnosis: values of a call that select the
// target are replaced by those in parameters, which come from [Parameters]. This happens after
// [operation.Builtin.Fill], so neither an Operation's fixed parameters nor results of other
// operations can select another target. A built-in that is not made for tenants fails.
func Builtins(all []operation.Builtin, parameters map[string]string) []operation.Builtin {
	out := make([]operation.Builtin, len(all))
	for i := range all {
		b := all[i]
		out[i] = b
		run := b.Run
		if !b.TenantSafe || b.Effect != operation.Collect || run == nil {
			out[i].Run = func(context.Context, *operation.Call) (operation.Output, error) {
				return operation.Output{}, fmt.Errorf("%s is not available to a namespace's user", b.Name)
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
