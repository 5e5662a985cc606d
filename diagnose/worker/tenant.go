package worker

import (
	"context"
	"errors"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/tenancy"
)

// asksForPod reports whether the pod of a Diagnosis outside the system namespace must be looked up
// before anything of it runs: what the Diagnosis may access follows from that pod, not from what
// its author claims. The lock is held.
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
	_, parameters, err := tenancy.Resolve(w.resolver(known), set, d, pod)
	if err != nil {
		return nil, reasonOf(err), err
	}
	return parameters, "", nil
}
