package start

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/alerts"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Take implements [alerts.Taker]. A request that is sent again, because the first was not settled
// in time, waits for the Diagnoses of the first.
func (p *Part) Take(ctx context.Context, list []*trigger.Alert) error {
	causes := make(map[string]bool, len(list))
	for _, a := range list {
		if err := p.Ready(); err != nil {
			return err
		}
		if p.queue.full() {
			return &alerts.Unavailable{Why: fmt.Sprintf("%d Diagnoses are waiting to be created", p.queue.length()), After: 5 * time.Second}
		}
		known, err := p.podsOfAlert(ctx, a)
		if err != nil {
			p.report.pods.Do(func() { p.cfg.Log.Error("can't look up the pods of alerts; the sender must retry", "error", err) })
			return &alerts.Unavailable{Why: "can't look up the pods of alerts", After: 5 * time.Second}
		}
		cause := "alert " + a.Fingerprint() + " " + a.StartsAt.Format(time.RFC3339Nano)
		causes[cause] = true
		p.enqueue(cause, func(e *trigger.Engine) []*v1alpha1.Diagnosis { return e.Alert(a, known, p.cfg.Now()) })
	}
	if left := p.queue.waitFor(ctx, causes); left > 0 {
		return &alerts.Unavailable{Why: fmt.Sprintf("%d Diagnoses are not created yet", left), After: 5 * time.Second}
	}
	if err := p.writeProblems(ctx, list); err != nil {
		p.report.problems.Do(func() {
			p.cfg.Log.Error("can't write the state of alerts to their Diagnoses; the sender must retry", "error", err)
		})
		return &alerts.Unavailable{Why: "can't write the state of alerts to their Diagnoses", After: 5 * time.Second}
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
