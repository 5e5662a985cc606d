package start

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Take implements [taker]. A request that is sent again, because the first was not settled
// in time, waits for the Diagnoses of the first.
func (p *Part) Take(ctx context.Context, list []*trigger.Alert) error {
	causes := make(map[string]bool, len(list))
	for _, a := range list {
		if err := p.Ready(); err != nil {
			return err
		}
		if n := p.queue.length(); n >= maxQueue { // a wanted Diagnosis can't be postponed
			return &notNow{why: fmt.Sprintf("%d Diagnoses are waiting to be created", n), after: 5 * time.Second}
		}
		known, err := p.podsOfAlert(ctx, a)
		if err != nil {
			p.report.pods.Do(func() { p.cfg.Log.Error("can't look up the pods of alerts; the sender must retry", "error", err) })
			return &notNow{why: "can't look up the pods of alerts", after: 5 * time.Second}
		}
		cause := "alert " + a.Fingerprint() + " " + a.StartsAt.Format(time.RFC3339Nano)
		causes[cause] = true
		p.enqueue(cause, func(e *trigger.Engine) []*v1alpha1.Diagnosis { return e.Alert(a, known, p.cfg.Now()) })
	}
	if left := p.queue.waitFor(ctx, causes); left > 0 {
		return &notNow{why: fmt.Sprintf("%d Diagnoses are not created yet", left), after: 5 * time.Second}
	}
	if err := p.writeProblems(ctx, list); err != nil {
		p.report.problems.Do(func() {
			p.cfg.Log.Error("can't write the state of alerts to their Diagnoses; the sender must retry", "error", err)
		})
		return &notNow{why: "can't write the state of alerts to their Diagnoses", after: 5 * time.Second}
	}
	return p.Ready() // what was wanted during shutdown may be lost
}

func (p *Part) podsOfAlert(ctx context.Context, a *trigger.Alert) (trigger.Known, error) {
	var asked []types.NamespacedName
	p.look(func(e *trigger.Engine) { asked = e.PodsOfAlert(a, p.cfg.Now()) })
	pods := make(map[types.NamespacedName]*trigger.Pod, len(asked))
	for _, name := range asked {
		pod, err := p.pod(ctx, name)
		if err != nil {
			return trigger.Known{}, err
		}
		pods[name] = pod
	}
	return p.lookups(pods), nil
}

const (
	// seenEvery is the shortest interval between writes that record that an alert lasts, if only
	// other Diagnoses depend on it: those of a targetSelector, and follow-ups.
	seenEvery = 30 * time.Second
	// waitingEvery is that interval while no repair was made: a waiting repair accepts an alert
	// that was reported up to an hour ago.
	waitingEvery = 10 * time.Minute
	// together is how close two notifications of the same alert are if the second has nothing new:
	// they come from two Alertmanagers or two Prometheus servers.
	together = time.Second
	// seenFor is how long after the Diagnosis' end this is written: verifyWithin is at most 24h.
	seenFor = 25 * time.Hour
)

// writeProblems records in the Diagnoses of alerts whether the alert lasts, while something depends
// on it, and when it is gone.
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
		return nil // it is sent again
	}
	// One at a time: concurrent writes would only conflict.
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

// problemOf returns the problem to write to a Diagnosis' status, or nil if there is nothing to
// write.
func problemOf(d *v1alpha1.Diagnosis, t *trigger.Reported, now time.Time) *v1alpha1.Problem {
	had := d.Status.Problem
	if d.Labels[trigger.LabelSource] != string(trigger.SourceAlert) || t.Gone && had != nil && had.State == v1alpha1.ProblemGone {
		return nil
	}
	if t.Gone {
		return &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NewMicroTime(t.Since)}
	}
	every, depends := depends(d, now)
	if !depends || had != nil && had.Seen != nil && now.Sub(had.Seen.Time) < every {
		return nil
	}
	return &v1alpha1.Problem{State: v1alpha1.ProblemLasts, Since: metav1.NewMicroTime(t.Since), Seen: new(metav1.NewMicroTime(now))}
}

// depends reports whether something depends on whether the alert of a Diagnosis lasts, because a
// repair may wait or must be verified. every is the shortest useful interval between writes.
func depends(d *v1alpha1.Diagnosis, now time.Time) (every time.Duration, yes bool) {
	end := d.Status.CompletionTime
	allowed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionRemediationAllowed)
	verified := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case end != nil && now.Sub(end.Time) > seenFor:
		return 0, false
	case d.Spec.TargetSelector != nil, verified != nil && verified.Status == metav1.ConditionFalse:
		return seenEvery, true
	case verified != nil && verified.Status == metav1.ConditionUnknown && verified.Reason != v1alpha1.ReasonMoot,
		end == nil && allowed != nil && allowed.Reason == v1alpha1.ReasonProblemUnknown:
		return together, true
	default:
		return waitingEvery, end == nil
	}
}
