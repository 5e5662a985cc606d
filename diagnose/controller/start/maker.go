package start

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Outcomes of a wanted Diagnosis.
const (
	outcomeMade    = "made"
	outcomeExists  = "exists" // created before: by an earlier leader, or before a restart
	outcomeRefused = "refused"
	outcomeGivenUp = "given_up"
)

// makeAll creates Diagnoses until the queue is closed.
func (p *Part) makeAll(ctx context.Context) {
	for {
		it := p.queue.next()
		if it == nil {
			return
		}
		outcome, err := p.make(ctx, it)
		name := it.dx.Labels[v1alpha1.LabelTrigger]
		switch {
		case outcome == "" && ctx.Err() != nil:
			p.queue.again(it) // not settled, so it does not count as made
			continue
		case outcome == "":
			p.counts.retries.Inc()
			p.cfg.Log.Debug("diagnosis not created yet", "trigger", name, "diagnosis", it.dx.Name, "error", err)
			p.queue.again(it)
			continue
		case err != nil:
			p.cfg.Log.Error("can't create the diagnosis; dropped it", "trigger", name, "diagnosis", it.dx.Name, "outcome", outcome, "error", err)
		default:
			p.cfg.Log.Info("diagnosis created", "trigger", name, "diagnosis", it.dx.Name, "node", it.dx.Spec.NodeName, "outcome", outcome)
		}
		p.counts.diagnoses.WithLabelValues(name, outcome).Inc()
		p.queue.settle(it)
	}
}

// make tries to create one Diagnosis. An empty outcome means that it must be retried.
func (p *Part) make(ctx context.Context, it *item) (outcome string, err error) {
	ctx, cancel := context.WithTimeout(ctx, makeWithin)
	defer cancel()
	err = p.objects.Create(ctx, it.dx.DeepCopy())
	switch {
	case err == nil:
		return outcomeMade, nil
	case apierrors.IsAlreadyExists(err):
		return outcomeExists, nil
	case final(err):
		return outcomeRefused, err
	case p.cfg.Now().Sub(it.since) > giveUpAfter:
		return outcomeGivenUp, err
	}
	return "", err
}

// final reports whether the API server rejected the object itself. A missing right or CRD is not
// final: somebody may fix it.
func final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// tick creates the Diagnoses of schedules.
func (p *Part) tick(ctx context.Context) {
	for {
		now := p.cfg.Now()
		nap := longestNap
		p.look(func(e *trigger.Engine) {
			if next, ok := e.NextTick(now); ok {
				nap = max(min(nap, next.Sub(now)), 0)
			}
		})
		t := time.NewTimer(nap)
		select {
		case <-t.C:
		case <-p.changed:
		case <-ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
		if !p.queue.room(ctx) {
			return
		}
		p.enqueue("cron", func(e *trigger.Engine) []*v1alpha1.Diagnosis { return e.Tick(p.lookups(nil), p.cfg.Now()) })
	}
}
