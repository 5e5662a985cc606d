package policy

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Objects are the policies of an API server.
type Objects struct {
	// Reader must ask the server: a cache would only cost conflicts, but one that lags
	// behind costs many.
	Reader client.Reader
	Writer client.SubResourceWriter // of the status
}

// Get implements [Store].
func (o *Objects) Get(ctx context.Context, name string) (*v1alpha1.RemediationPolicy, error) {
	p := &v1alpha1.RemediationPolicy{}
	if err := o.Reader.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: %s", ErrNoPolicy, name)
		}
		return nil, err
	}
	return p, nil
}

// Update implements [Store]. That an object has a resourceVersion is for the server to
// see: without one it refuses to update a custom resource.
func (o *Objects) Update(ctx context.Context, p *v1alpha1.RemediationPolicy) error {
	err := o.Writer.Update(ctx, p)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %s", ErrConflict, p.Name)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNoPolicy, p.Name)
	default:
		return err
	}
}
