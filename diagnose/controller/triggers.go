package controller

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// triggers maintains the condition Accepted of Triggers.
type triggers struct {
	client client.Client
	names  *names
}

// Reconcile updates the status of one Trigger.
func (t *triggers) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := &v1alpha1.Trigger{}
	if err := t.client.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	reason, message, err := t.check(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := object.DeepCopy()
	accept(&next.Status.Conditions, next.Generation, reason == v1alpha1.ReasonAccepted, reason, message)
	_, err = writeStatus(ctx, t.client, object, next)
	return settled(ctx, reconcile.Result{}, err)
}

// check returns the condition Accepted. A Trigger is accepted if the Diagnoses it creates can run.
func (t *triggers) check(ctx context.Context, object *v1alpha1.Trigger) (reason, message string, err error) {
	matcher, err := trigger.Compile(object)
	if wrong, ok := errors.AsType[trigger.Errors](err); ok {
		return wrong.Reason(), listedLines(len(wrong), func(i int) string { return wrong[i].Error() }), nil
	}
	if err != nil {
		return v1alpha1.ReasonInvalid, bounded(err.Error()), nil
	}
	const field = "spec.operationSet"
	name := object.Spec.OperationSet
	set, c, err := t.names.set(ctx, name)
	if err != nil {
		return "", "", err
	}
	if set == nil {
		return v1alpha1.ReasonUnknownOperationSet, fmt.Sprintf("%s: no OperationSet is named %q: Diagnoses fail with %s", field, name, v1alpha1.ReasonOperationSetNotFound), nil
	}
	if why, _, ok := checkSet(c, set); !ok {
		return v1alpha1.ReasonOperationSetNotReady, fmt.Sprintf("%s: the OperationSet %q can't be run (%s): Diagnoses fail with %s", field, name, why, v1alpha1.ReasonOperationSetNotReady), nil
	}
	if warnings := matcher.Warnings(); len(warnings) > 0 {
		return v1alpha1.ReasonAccepted, listedLines(len(warnings), func(i int) string { return warnings[i].Error() }), nil
	}
	return v1alpha1.ReasonAccepted, fmt.Sprintf("starts the OperationSet %q", name), nil
}

// setHandler enqueues the Triggers that name a changed OperationSet. A change of an Operation
// changes the status of the set, and so arrives here too.
func (t *triggers) setHandler() handler.TypedEventHandler[*v1alpha1.OperationSet, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, set *v1alpha1.OperationSet) []reconcile.Request {
		var list v1alpha1.TriggerList
		if err := t.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is ending
		}
		var out []reconcile.Request
		for i := range list.Items {
			if list.Items[i].Spec.OperationSet == set.Name {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	})
}
