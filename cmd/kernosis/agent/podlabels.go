package agent

import (
	"context"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector"
)

// podLabels returns the labels to add to an event: those of its container's pod, if a rule in force
// reads them. The agent's lock is held.
func (a *pipeline) podLabels(ev *event.Event) map[string]string {
	if ev.Container == nil || ev.Container.PodUID == "" || a.pods == nil || len(a.engine.Rules().PodLabelReaders()) == 0 {
		return nil
	}
	p, _ := a.pods.Pod(ev.Container.PodUID)
	return event.SafeLabels(p.Labels)
}

// namePod sets the name and namespace of a container's pod.
func (a *pipeline) namePod(c *event.Container) {
	if a.pods == nil {
		return
	}
	if p, ok := a.pods.Pod(c.PodUID); ok {
		c.PodName, c.PodNamespace = display.Safe(p.Name, 253), display.Safe(p.Namespace, 253)
	}
}

// awaitPodsFor is how long events wait for the first list of the node's pods. Until then they stay in
// the ring buffers.
const awaitPodsFor = 3 * time.Second

// awaitPods waits until the pods are listed if rules read pod labels. Otherwise events that
// happened while no agent ran would have no labels.
func (a *pipeline) awaitPods(ctx context.Context, rules *detector.RuleSet) {
	if a.pods == nil || len(rules.PodLabelReaders()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awaitPodsFor)
	defer cancel()
	a.pods.Await(ctx)
}

// warnOfLabels logs a warning if rules read pod labels but the node's pods are unknown.
func (a *pipeline) warnOfLabels(rules *detector.RuleSet) {
	if readers := rules.PodLabelReaders(); a.pods == nil && len(readers) > 0 {
		a.log.Warn("pod.labels is empty in all events: without an API server, kubelet-url or pods-file, the node's pods are unknown", "rules", readers)
	}
}
