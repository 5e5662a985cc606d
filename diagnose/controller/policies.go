package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// policies keeps the condition Accepted of RemediationPolicies. Paused, and the repairs
// under way, are of those who repair.
type policies struct {
	client client.Client
}

// Reconcile looks at one RemediationPolicy.
func (p *policies) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := &v1alpha1.RemediationPolicy{}
	if err := p.client.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	reason, message := v1alpha1.ReasonAccepted, "the policy is in force"
	err := policy.New(object).Err()
	if err != nil {
		reason, message = v1alpha1.ReasonInvalid, bounded("spec."+err.Error())
	}
	next := object.DeepCopy()
	accept(&next.Status.Conditions, next.Generation, err == nil, reason, message)
	_, err = writeStatus(ctx, p.client, object, next)
	return settled(ctx, reconcile.Result{}, err)
}
