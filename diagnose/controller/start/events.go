package start

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// eventWatch watches the cluster's Events while some Trigger is about such.
type eventWatch struct {
	part   *Part
	cancel context.CancelFunc // nil: it does not watch
	ended  sync.WaitGroup
}

func (w *eventWatch) set(ctx context.Context, wanted bool) {
	switch {
	case !wanted:
		w.stop()
	case w.cancel == nil:
		ctx, cancel := context.WithCancel(ctx)
		w.cancel = cancel
		source := cache.NewListWatchFromClient(w.part.api.CoreV1().RESTClient(), "events", metav1.NamespaceAll, fields.Everything())
		r := cache.NewReflectorWithOptions(source, &corev1.Event{}, &sieve{part: w.part}, cache.ReflectorOptions{Name: "triggers' events"})
		w.ended.Go(func() { r.RunWithContext(ctx) })
	}
}

func (w *eventWatch) stop() {
	if w.cancel == nil {
		return
	}
	w.cancel()
	w.ended.Wait()
	w.cancel = nil
	w.part.counts.watches.Set(0)
}

// sieve hands on the Events that Triggers are about, and keeps none: a cluster has tens of
// thousands.
type sieve struct{ part *Part }

// Transformer implements [cache.TransformingStore].
func (s *sieve) Transformer() cache.TransformFunc { return trimEvent }

// Add implements [cache.ReflectorStore].
func (s *sieve) Add(object any) error { return s.Update(object) }

// Update implements [cache.ReflectorStore].
func (s *sieve) Update(object any) error {
	if trimmed, err := trimEvent(object); err == nil {
		if ev, ok := trimmed.(*corev1.Event); ok {
			s.part.hear(ev)
		}
	}
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *sieve) Delete(any) error { return nil }

// Replace implements [cache.ReflectorStore]: it has what there is at the beginning, and
// after a gap. The engine knows what it was told before.
func (s *sieve) Replace(all []any, _ string) error {
	s.part.counts.watches.Set(1)
	for _, object := range all {
		if err := s.Update(object); err != nil {
			return err
		}
	}
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *sieve) Resync() error { return nil }

// trimEvent keeps what Triggers match and Diagnoses tell.
func trimEvent(object any) (any, error) {
	ev, ok := object.(*corev1.Event)
	if !ok {
		return object, nil
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: ev.Name, Namespace: ev.Namespace, UID: ev.UID, CreationTimestamp: ev.CreationTimestamp, ResourceVersion: ev.ResourceVersion,
		},
		InvolvedObject: ev.InvolvedObject, Reason: ev.Reason, Message: ev.Message, Source: ev.Source, ReportingController: ev.ReportingController,
		FirstTimestamp: ev.FirstTimestamp, LastTimestamp: ev.LastTimestamp, EventTime: ev.EventTime, Series: ev.Series,
	}, nil
}

// hear takes an Event that a Trigger is about. It must not wait: the watch would end.
func (p *Part) hear(ev *corev1.Event) {
	matchers := p.matchers.Load()
	if matchers == nil {
		return
	}
	for _, m := range *matchers {
		if !m.MatchesEvent(ev) {
			continue
		}
		select {
		case p.events <- ev:
			p.counts.matched.Inc()
		default:
			p.counts.dropped.Inc()
			p.tell.dropped.Do(func() {
				p.cfg.Log.Error("too many Events wait, some are dropped", "most", maxEvents, "event", ev.Namespace+"/"+ev.Name)
			})
		}
		return
	}
}

// hearAll sees to Events until the context ends.
func (p *Part) hearAll(ctx context.Context) {
	for {
		select {
		case ev := <-p.events:
			if !p.queue.room(ctx) {
				return
			}
			known := p.podsOfEvent(ctx, ev)
			if ctx.Err() != nil {
				return // the next leader lists it again
			}
			p.want("event", func(e *trigger.Engine) []*v1alpha1.Diagnosis { return e.KubeEvent(ev, known, p.cfg.Now()) })
		case <-ctx.Done():
			return
		}
	}
}

// podsOfEvent looks the Event's pod up. Where that can't be done, what the Event says has
// to do.
func (p *Part) podsOfEvent(ctx context.Context, ev *corev1.Event) trigger.Known {
	var asked []trigger.PodName
	p.look(func(e *trigger.Engine) { asked = e.PodsOfEvent(ev, p.cfg.Now()) })
	pods := make(map[trigger.PodName]*trigger.Pod, len(asked))
	for _, name := range asked {
		for try := range podTries {
			pod, err := p.pod(ctx, name)
			if err == nil {
				pods[name] = pod
				break
			}
			p.tell.pods.Do(func() { p.cfg.Log.Error("the pod of an Event can't be looked up", "error", err) })
			select {
			case <-time.After(firstRetry << try):
			case <-ctx.Done():
			}
		}
	}
	return p.known(pods)
}
