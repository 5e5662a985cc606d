package repair

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
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
