package start

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

const (
	// seenEvery is how often at most it is written that an alert lasts, where only other
	// Diagnoses may depend on it: those of a targetSelector, and those that follow.
	seenEvery = 30 * time.Second
	// together is how close two notifications of an alert are where the second one has
	// nothing new: of two Alertmanagers, or of two Prometheus.
	together = time.Second
	// seenFor is for how long that goes on behind the end: verifyWithin has at most 24h.
	seenFor = 25 * time.Hour
)

// writeProblems writes what alerts report into the Diagnoses that were made for them: that
// an alert lasts while something depends on it, and that it is gone.
func (p *Part) writeProblems(ctx context.Context, list []*trigger.Alert) error {
	for _, a := range list {
		var reported []trigger.Reported
		p.look(func(e *trigger.Engine) { reported = e.Reported(a, p.cfg.Now()) })
		for i := range reported {
			if err := p.writeProblem(ctx, &reported[i]); err != nil {
				return fmt.Errorf("diagnosis %s: %w", reported[i].Diagnosis, err)
			}
		}
	}
	return nil
}

func (p *Part) writeProblem(ctx context.Context, t *trigger.Reported) error {
	key, d := client.ObjectKey{Namespace: p.cfg.Namespace, Name: t.Diagnosis}, &v1alpha1.Diagnosis{}
	err := p.objects.Get(ctx, key, d)
	if err == nil && problemOf(d, t, p.cfg.Now()) == nil {
		return nil
	}
	if apierrors.IsNotFound(err) && !t.Gone {
		return nil // it comes again
	}
	// One at a time: those that come together would only be in each other's way.
	p.reporting.Lock()
	defer p.reporting.Unlock()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		d := &v1alpha1.Diagnosis{}
		if err := p.live.Get(ctx, key, d); err != nil {
			return client.IgnoreNotFound(err)
		}
		next := d.DeepCopy()
		if next.Status.Problem = problemOf(d, t, p.cfg.Now()); next.Status.Problem == nil {
			return nil
		}
		return client.IgnoreNotFound(p.objects.Status().Patch(ctx, next, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})))
	})
}

// problemOf returns what is to be written of a Diagnosis' problem; nil: nothing.
func problemOf(d *v1alpha1.Diagnosis, t *trigger.Reported, now time.Time) *v1alpha1.Problem {
	had := d.Status.Problem
	if d.Labels[trigger.LabelSource] != string(trigger.SourceAlert) || had != nil && had.State == v1alpha1.ProblemGone {
		return nil
	}
	if t.Gone {
		return &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NewMicroTime(t.Since)}
	}
	every, depends := depends(d, now)
	if !depends || had != nil && had.Seen != nil && now.Sub(had.Seen.Time) < every {
		return nil
	}
	seen := metav1.NewMicroTime(now)
	return &v1alpha1.Problem{State: v1alpha1.ProblemLasts, Since: metav1.NewMicroTime(t.Since), Seen: &seen}
}

// depends reports whether it matters that the alert of a Diagnosis lasts, as a repair may
// wait or is to be verified, and how often it need be written at most.
func depends(d *v1alpha1.Diagnosis, now time.Time) (every time.Duration, yes bool) {
	verified := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	switch end := d.Status.CompletionTime; {
	case end == nil && d.Spec.TargetSelector == nil:
		return together, true
	case end != nil && now.Sub(end.Time) > seenFor:
		return 0, false
	case d.Spec.TargetSelector != nil, verified != nil && verified.Status == metav1.ConditionFalse:
		return seenEvery, true
	default:
		return together, verified != nil && verified.Status == metav1.ConditionUnknown && verified.Reason != v1alpha1.ReasonMoot
	}
}
