package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// names looks up OperationSets and Operations by name, and maintains the status of OperationSets and
// the condition Accepted of Triggers.
type names struct {
	client   client.Client // reads from the cache
	api      client.Reader
	builtins []operation.Builtin
}

// config returns the configuration that OperationSets are resolved with: all current Operations.
func (n *names) config(ctx context.Context) (resolve.Config, error) {
	var list v1alpha1.OperationList
	if err := n.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return resolve.Config{}, err
	}
	operations := make([]*v1alpha1.Operation, len(list.Items))
	for i := range operations {
		operations[i] = &list.Items[i]
		operations[i].TypeMeta = typeOf(v1alpha1.KindOperation) // errors name it
	}
	c := resolve.Of(operations, n.builtins)
	// Only agents read Secrets, when an operation runs; nothing runs here.
	c.Secret = func(context.Context, string) (map[string][]byte, error) { return nil, errors.ErrUnsupported }
	return c, nil
}

// set returns an OperationSet and the configuration to resolve it with, or nil if there is none. If
// the cache has none, it asks the API server: both objects may have just been created.
func (n *names) set(ctx context.Context, name string) (*v1alpha1.OperationSet, resolve.Config, error) {
	set, key := &v1alpha1.OperationSet{}, client.ObjectKey{Name: name}
	err := n.client.Get(ctx, key, set)
	if apierrors.IsNotFound(err) {
		err = n.api.Get(ctx, key, set)
	}
	if err != nil {
		return nil, resolve.Config{}, client.IgnoreNotFound(err)
	}
	set.TypeMeta = typeOf(v1alpha1.KindOperationSet)
	c, err := n.config(ctx)
	return set, c, err
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: kind}
}

// reconcileSet updates the status of one OperationSet.
func (n *names) reconcileSet(ctx context.Context, wanted reconcile.Request) (reconcile.Result, error) {
	set := &v1alpha1.OperationSet{}
	if err := n.client.Get(ctx, wanted.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	c, err := n.config(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := set.DeepCopy()
	next.TypeMeta = typeOf(v1alpha1.KindOperationSet)
	next.Status = setStatus(c, next)
	next.TypeMeta = set.TypeMeta
	return settled(ctx, reconcile.Result{}, writeStatus(ctx, n.client, set, next))
}

// operationHandler enqueues the sets that name a changed Operation.
func (n *names) operationHandler() handler.TypedEventHandler[*v1alpha1.Operation, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o *v1alpha1.Operation) []reconcile.Request {
		var list v1alpha1.OperationSetList
		if err := n.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is ending
		}
		var out []reconcile.Request
		for i := range list.Items {
			runs := func(node v1alpha1.Node) bool { return node.Operation == o.Name }
			if slices.ContainsFunc(list.Items[i].Spec.AdjacencyList, runs) {
				out = append(out, request("", list.Items[i].Name))
			}
		}
		return out
	})
}

// setStatus returns the status of a set. A valid graph gets its paths even if some of its names are
// unknown.
func setStatus(c resolve.Config, set *v1alpha1.OperationSet) v1alpha1.OperationSetStatus {
	status := v1alpha1.OperationSetStatus{Conditions: append([]metav1.Condition(nil), set.Status.Conditions...)}
	if g, err := resolve.Graph(c, set); err == nil {
		status.PathCount = g.Count().String()
		for _, path := range g.Paths(v1alpha1.MaxPaths) {
			ids := make(v1alpha1.Path, len(path))
			for i, id := range path {
				ids[i] = int32(id)
			}
			status.Paths = append(status.Paths, ids)
		}
	}
	reason, message, ok := checkSet(c, set)
	status.Ready = ok
	accept(&status.Conditions, set.Generation, ok, reason, message)
	return status
}

// checkSet returns reason, message and status of the condition Accepted of a set.
func checkSet(c resolve.Config, set *v1alpha1.OperationSet) (reason, message string, ok bool) {
	_, err := resolve.Set(c, set)
	faults, known := errors.AsType[resolve.Faults](err)
	switch {
	case known:
		return faults[0].Reason, listed(len(faults), func(i int) string {
			if f := faults[i]; f.Object == set { // faults of the set itself omit its name
				return f.Field + ": " + f.Message
			}
			return faults[i].Error()
		}), false
	case err != nil:
		return v1alpha1.ReasonInvalid, bounded(err.Error()), false
	}
	return v1alpha1.ReasonAccepted, "the graph can be run", true
}

// listed joins n texts to a message of the API's length, and counts the texts that do not fit.
func listed(n int, text func(int) string) string {
	const room = v1alpha1.MaxMessageBytes - len("; and 1234567890 more")
	var b strings.Builder
	for i := range n {
		one := bounded(text(i))
		if i > 0 && b.Len()+len("; ")+len(one) > room {
			fmt.Fprintf(&b, "; and %d more", n-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(one)
	}
	return bounded(b.String())
}

// reconcileTrigger updates the status of one Trigger.
func (n *names) reconcileTrigger(ctx context.Context, wanted reconcile.Request) (reconcile.Result, error) {
	object := &v1alpha1.Trigger{}
	if err := n.client.Get(ctx, wanted.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	reason, message, err := n.checkTrigger(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := object.DeepCopy()
	accept(&next.Status.Conditions, next.Generation, reason == v1alpha1.ReasonAccepted, reason, message)
	return settled(ctx, reconcile.Result{}, writeStatus(ctx, n.client, object, next))
}

// checkTrigger returns the condition Accepted. A Trigger is accepted if the Diagnoses it creates can run.
func (n *names) checkTrigger(ctx context.Context, object *v1alpha1.Trigger) (reason, message string, err error) {
	matcher, err := trigger.Compile(object)
	if wrong, ok := errors.AsType[trigger.Errors](err); ok {
		return wrong.Reason(), listed(len(wrong), func(i int) string { return wrong[i].Error() }), nil
	}
	if err != nil {
		return v1alpha1.ReasonInvalid, bounded(err.Error()), nil
	}
	const field = "spec.operationSet"
	name := object.Spec.OperationSet
	set, c, err := n.set(ctx, name)
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
		return v1alpha1.ReasonAccepted, listed(len(warnings), func(i int) string { return warnings[i].Error() }), nil
	}
	return v1alpha1.ReasonAccepted, fmt.Sprintf("starts the OperationSet %q", name), nil
}

// setHandler enqueues the Triggers that name a changed OperationSet. A change of an Operation
// changes the status of the set, and so arrives here too.
func (n *names) setHandler() handler.TypedEventHandler[*v1alpha1.OperationSet, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, set *v1alpha1.OperationSet) []reconcile.Request {
		var list v1alpha1.TriggerList
		if err := n.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is ending
		}
		var out []reconcile.Request
		for i := range list.Items {
			if list.Items[i].Spec.OperationSet == set.Name {
				out = append(out, request("", list.Items[i].Name))
			}
		}
		return out
	})
}
