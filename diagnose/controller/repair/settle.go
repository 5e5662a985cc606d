package repair

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// settle settles the slots that a Diagnosis holds once it has ended.
func (l *look) settle(ctx context.Context) error {
	if !l.d.Status.Phase.Ended() {
		return nil
	}
	all, err := l.policies(ctx)
	if err != nil {
		return err
	}
	names := held(all, l.d)
	if _, took := l.took.Load(l.d.UID); took {
		names = nil // the cache may not show the slots yet
		for _, p := range all {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		if err := l.sweep(ctx, name, l.d); err != nil {
			return err
		}
	}
	l.tookNone()
	return nil
}

// sweep settles the slots of a policy. known is a Diagnosis that the caller has newer than the
// cache; may be nil.
func (r *reconciler) sweep(ctx context.Context, name string, known *v1alpha1.Diagnosis) error {
	given, err := r.budget.Sweep(ctx, name, func(slot *v1alpha1.Repair) policy.Facts { return r.facts(ctx, slot, known) })
	if apierrors.IsNotFound(err) {
		return nil
	}
	for i := range given {
		r.ended.Delete(given[i].Diagnosis)
		r.config.Log.Info("slot released", "policy", name, "node", given[i].Node, "operation", given[i].Operation, "diagnosis_uid", string(given[i].Diagnosis))
	}
	return err
}

// facts reads the node and the Diagnosis of a slot. If something can't be determined, the slot
// stays held.
func (r *reconciler) facts(ctx context.Context, slot *v1alpha1.Repair, known *v1alpha1.Diagnosis) policy.Facts {
	f := policy.Facts{Now: r.config.Now(), Node: &policy.Node{Name: slot.Node}, Holder: policy.HolderRuns}
	// Read the live node: the cache may miss a recent cordon, and a cordoned node is not in
	// service.
	n := &corev1.Node{}
	switch err := r.live.Get(ctx, client.ObjectKey{Name: slot.Node}, n); {
	case apierrors.IsNotFound(err):
		f.Node = nil
		return f
	case err != nil:
		if ctx.Err() == nil {
			r.config.Log.Warn("can't read the node of a slot", "node", slot.Node, "error", err)
		}
		return f
	default:
		f.Node = new(policy.NodeOf(n))
	}
	d := known
	if d == nil || d.UID != slot.Diagnosis {
		var err error
		if d, err = r.diagnosis(ctx, slot); err != nil {
			r.config.Log.Warn("can't read the Diagnosis of a slot", "node", slot.Node, "error", err)
			return f
		}
	}
	if d == nil {
		f.Holder, f.Gentle = policy.HolderLost, r.gentle(ctx, slot.Operation, nil)
		return f
	}
	started := begun(allowedRepairs(d))
	f.Holder, f.Gentle = policy.HolderOf(d, len(started) > 0), true
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	if d.Status.Repairing() != nil || c != nil && c.Reason == v1alpha1.ReasonVerifying {
		f.Holder = policy.HolderRuns // the controller makes or verifies a repair, even if the run has ended
	}
	if d.Status.Phase.Ended() {
		// By our clock, because the node's may be wrong. After a restart this time starts over.
		since, _ := r.ended.LoadOrStore(d.UID, f.Now)
		f.HolderEnded = since.(time.Time)
	}
	for i := range started {
		f.Gentle = f.Gentle && r.gentle(ctx, started[i].operation, d.Spec.Parameters)
		if started[i].here && started[i].ended.After(f.HolderEnded) {
			f.HolderEnded = started[i].ended
		}
	}
	return f
}

// diagnosis returns the Diagnosis that holds a slot, or nil if there is none. It asks the API
// server if the cache has none.
func (r *reconciler) diagnosis(ctx context.Context, slot *v1alpha1.Repair) (*v1alpha1.Diagnosis, error) {
	var list v1alpha1.DiagnosisList
	find := func() *v1alpha1.Diagnosis {
		for i := range list.Items {
			if list.Items[i].UID == slot.Diagnosis {
				return &list.Items[i]
			}
		}
		return nil
	}
	err := r.client.List(ctx, &list, client.InNamespace(r.config.Namespace), client.MatchingFields{byNode: slot.Node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	if d := find(); d != nil {
		return d, nil
	}
	list = v1alpha1.DiagnosisList{}
	if err := r.live.List(ctx, &list, client.InNamespace(r.config.Namespace), client.MatchingFields{"spec.nodeName": slot.Node}); err != nil {
		return nil, err
	}
	return find(), nil
}

// builtinOf returns the name and fixed parameters of the built-in that an operation runs.
func (r *reconciler) builtinOf(ctx context.Context, name string) (builtin string, fixed map[string]string, ok bool) {
	op := &v1alpha1.Operation{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, op)
	switch b := op.Spec.Processor.Builtin; {
	case apierrors.IsNotFound(err):
		return name, nil, true
	case err != nil || b == nil:
		return "", nil, false
	default:
		return b.Name, b.Parameters, true
	}
}

// gentle is [gentle] of an operation, judging by its fixed and given parameters.
func (r *reconciler) gentle(ctx context.Context, name string, given map[string]string) bool {
	name, fixed, ok := r.builtinOf(ctx, name)
	if !ok {
		return false
	}
	b, ok := operation.Lookup(r.builtins, name)
	if !ok {
		return false
	}
	values := map[string]string{}
	for _, p := range b.Parameters {
		values[p.Name] = cmp.Or(fixed[p.Name], given[p.Name], p.Default)
	}
	return gentle(name, values)
}
