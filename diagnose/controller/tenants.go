package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

// refused is why a Diagnosis must not run. The zero value: it may.
type refused struct {
	reason, message string
}

// refusal returns why a Diagnosis of a namespace's user may not run, before its pod is looked up.
func (r *diagnoses) refusal(ctx context.Context, d *v1alpha1.Diagnosis) (refused, error) {
	if why := tenancy.Target(d); why != nil {
		return notAllowed(why), nil
	}
	if d.Spec.NodeName != "" && !placed(d) {
		return refused{v1alpha1.ReasonNotAllowed, "spec.nodeName: outside the system namespace only the controller sets it"}, nil
	}
	if d.Spec.NodeName != "" {
		return refused{}, nil // it was checked before it was placed
	}
	set, c, err := r.names.set(ctx, d.Spec.OperationSet)
	if err != nil {
		return refused{}, err
	}
	if set == nil {
		return noSet(d), nil
	}
	return notAllowed(tenancy.Check(c, set, d)), nil
}

// notAllowed converts an error of package tenancy; nil: no refusal.
func notAllowed(why error) refused {
	if why == nil {
		return refused{}
	}
	return refused{v1alpha1.ReasonNotAllowed, why.Error()}
}

// refusalOfPod does the same once the pod is known.
func (r *diagnoses) refusalOfPod(d *v1alpha1.Diagnosis, pod *corev1.Pod) refused {
	if !tenancy.Applies(d, r.config.Namespace) {
		return refused{}
	}
	known, err := tenancy.PodOf(pod, d.Spec.PodReference)
	if _, ok := errors.AsType[tenancy.Refusals](err); ok {
		return notAllowed(err)
	}
	if err != nil {
		return refused{v1alpha1.ReasonPodNotFound, err.Error()}
	}
	_, why := tenancy.Parameters(d.Spec.Parameters, known)
	return notAllowed(why)
}

func noSet(d *v1alpha1.Diagnosis) refused {
	return refused{v1alpha1.ReasonOperationSetNotFound, fmt.Sprintf("no OperationSet is named %q", d.Spec.OperationSet)}
}
