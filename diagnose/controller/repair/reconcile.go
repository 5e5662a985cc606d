package repair

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// afterConflict leaves the cache time to receive the newer version.
const afterConflict = 100 * time.Millisecond

// passTimeout bounds one pass over a Diagnosis.
const passTimeout = 30 * time.Second

// Reconcile reconciles one Diagnosis.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	if request == wakeAll() {
		return reconcile.Result{}, r.wake(ctx)
	}
	d := &v1alpha1.Diagnosis{}
	if err := r.client.Get(ctx, request.NamespacedName, d); err != nil {
		if apierrors.IsNotFound(err) {
			r.note(request.NamespacedName, interest{})
			err = nil // its slot, if it has one, is swept
		}
		return reconcile.Result{}, err
	}
	l := &look{reconciler: r, d: d, now: r.config.Now()}
	err := l.look(ctx)
	r.note(request.NamespacedName, l.interest)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: afterConflict + rand.N(afterConflict)}, nil
	}
	if errors.Is(err, errGone) {
		return reconcile.Result{}, nil // its deletion event follows
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: l.again}, nil
}

// look is one pass over a Diagnosis.
type look struct {
	*reconciler
	d        *v1alpha1.Diagnosis // as last read or written
	now      time.Time
	again    time.Duration // until the next pass; 0: when something changes
	interest interest
}

// at schedules another pass for the given time.
func (l *look) at(t time.Time) {
	if t.IsZero() {
		return
	}
	if wait := max(t.Sub(l.now), time.Millisecond); l.again == 0 || wait < l.again {
		l.again = wait
	}
}

func (l *look) look(ctx context.Context) error {
	if l.d.Spec.NodeName == "" || len(l.d.Status.Results) == 0 && len(l.d.Status.Remediations) == 0 {
		return nil
	}
	if l.d.Spec.Cancel {
		if err := l.cancelFollowing(ctx); err != nil {
			return err
		}
	}
	// A repair under way comes before one that is due; never both at once.
	if rem := l.d.Status.Repairing(); rem != nil {
		return l.goOn(ctx, int(rem.ID))
	}
	if res := l.d.Status.AwaitingApproval(); res != nil && !l.d.Status.Phase.Ended() && !l.d.Spec.Cancel {
		if err := l.decide(ctx, res); err != nil {
			return err
		}
	}
	if err := l.verify(ctx); err != nil {
		return err
	}
	return l.settle(ctx)
}

// write patches the Diagnosis' status, and fails with a conflict if it has changed since it was
// read.
func (l *look) write(ctx context.Context, change func(*v1alpha1.DiagnosisStatus)) error {
	after := l.d.DeepCopy()
	change(&after.Status)
	if equality.Semantic.DeepEqual(&l.d.Status, &after.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(l.d, client.MergeFromWithOptimisticLock{})
	if err := l.client.Status().Patch(ctx, after, patch, client.FieldOwner(lease.Controller)); err != nil {
		if apierrors.IsNotFound(err) {
			return errGone
		}
		return err
	}
	l.d = after
	return nil
}

// errGone ends a pass over a Diagnosis that was deleted meanwhile.
var errGone = errors.New("the Diagnosis was deleted meanwhile")

// onDiagnosis enqueues a changed Diagnosis and the one whose repair it follows. If its problem has
// changed, it also enqueues its descendants. If it has ended, or its attempted repairs have
// changed, it also enqueues the Diagnoses of its node, because their repairs wait for that.
func (r *reconciler) onDiagnosis(ctx context.Context, q controller.Queue, was, is *v1alpha1.Diagnosis) {
	d := cmp.Or(is, was)
	q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
	if name, ok := followed(d); ok {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: name}})
	}
	if was == nil || is == nil {
		return
	}
	if !equality.Semantic.DeepEqual(was.Status.Problem, is.Status.Problem) {
		r.below(ctx, is, q)
	}
	if was.Status.Phase.Ended() != is.Status.Phase.Ended() || !slices.Equal(attemptsOf(was), attemptsOf(is)) {
		for _, request := range r.about(ctx, is.Spec.NodeName) {
			q.Add(request)
		}
	}
}

// below enqueues the children of a Diagnosis, and theirs.
func (r *reconciler) below(ctx context.Context, d *v1alpha1.Diagnosis, q controller.Queue) {
	var list v1alpha1.DiagnosisList
	if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingFields{controller.IndexParent: string(d.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is ending
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		r.below(ctx, &list.Items[i], q)
	}
}

// onAny enqueues what of returns, at any change of an object.
func onAny[T client.Object](of func() []reconcile.Request) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, T) []reconcile.Request { return of() })
}

// onPolicy enqueues the Diagnoses with a waiting repair when a policy is created or deleted, or
// when fields change on which decisions depend: its spec, and the nodes under repair or in
// cooldown.
func (r *reconciler) onPolicy(_ context.Context, q controller.Queue, was, is *v1alpha1.RemediationPolicy) {
	switch {
	case was == nil || is == nil || was.UID != is.UID || was.Generation != is.Generation:
		r.views.changes.Add(1)
		for _, request := range r.waiting() {
			q.Add(request)
		}
	case !equality.Semantic.DeepEqual(was.Status.Repairs, is.Status.Repairs) || !equality.Semantic.DeepEqual(was.Status.Cooldowns, is.Status.Cooldowns):
		r.views.changes.Add(1)
		q.AddAfter(wakeAll(), wakeAfter)
	}
}

// onNode enqueues what of returns, and soon after wakeAfter, when a node is created, deleted, or
// changed in what decisions and verifications depend on. Most changes of nodes are irrelevant.
func (r *reconciler) onNode(of func(ctx context.Context, node string) []reconcile.Request, soon ...reconcile.Request) handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	return controller.OnChange(func(ctx context.Context, q controller.Queue, was, is *corev1.Node) {
		if was != nil && is != nil && !matters(was, is) {
			return
		}
		r.views.changes.Add(1)
		for _, request := range of(ctx, cmp.Or(is, was).Name) {
			q.Add(request)
		}
		for _, request := range soon {
			q.AddAfter(request, wakeAfter)
		}
	})
}

func matters(before, after *corev1.Node) bool {
	a, b := policy.NodeOf(before), policy.NodeOf(after)
	return a.Ready != b.Ready || a.Cordoned != b.Cordoned || a.ControlPlane != b.ControlPlane || !maps.Equal(a.Labels, b.Labels) ||
		!readySince(before).Equal(readySince(after))
}

// readySince returns since when a node is ready; zero: it is not.
func readySince(n *corev1.Node) time.Time {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return time.Time{}
	}
	return n.Status.Conditions[i].LastTransitionTime.Time
}
