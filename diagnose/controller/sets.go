package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// sets maintains the status of OperationSets.
type sets struct {
	client client.Client
	names  *names
}

// Reconcile updates the status of one OperationSet.
func (s *sets) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	set := &v1alpha1.OperationSet{}
	if err := s.client.Get(ctx, request.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	c, err := s.names.config(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := set.DeepCopy()
	next.TypeMeta = typeOf(v1alpha1.KindOperationSet)
	next.Status = setStatus(c, next)
	next.TypeMeta = set.TypeMeta
	_, err = writeStatus(ctx, s.client, set, next)
	return settled(ctx, reconcile.Result{}, err)
}

// operationHandler enqueues the sets that name a changed Operation.
func (s *sets) operationHandler() handler.TypedEventHandler[*v1alpha1.Operation, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o *v1alpha1.Operation) []reconcile.Request {
		var list v1alpha1.OperationSetList
		if err := s.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is ending
		}
		var out []reconcile.Request
		for i := range list.Items {
			for j := range list.Items[i].Spec.AdjacencyList {
				if list.Items[i].Spec.AdjacencyList[j].Operation == o.Name {
					out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
					break
				}
			}
		}
		return out
	})
}

// itself enqueues the changed object.
func itself[T client.Object]() handler.TypedEventHandler[T, reconcile.Request] {
	return &handler.TypedEnqueueRequestForObject[T]{}
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
		return faults[0].Reason, listed(set, faults), false
	case err != nil:
		return v1alpha1.ReasonInvalid, bounded(err.Error()), false
	}
	return v1alpha1.ReasonAccepted, "the graph can be run", true
}

// listed lists as many faults as fit in a message. Faults of the set itself omit its name.
func listed(set *v1alpha1.OperationSet, faults resolve.Faults) string {
	return listedLines(len(faults), func(i int) string {
		if f := faults[i]; f.Object == set {
			return f.Field + ": " + f.Message
		}
		return faults[i].Error()
	})
}

// listedLines joins n texts to a message of the API's length, and counts the texts that do not fit.
func listedLines(n int, text func(int) string) string {
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
