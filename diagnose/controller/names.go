package controller

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
)

// names looks up OperationSets and Operations by name.
type names struct {
	client   client.Reader // the cache
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
