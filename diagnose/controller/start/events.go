package start

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// eventWatch watches the cluster's Events while some Trigger needs them.
type eventWatch struct {
	part   *Part
	cancel context.CancelFunc // nil: it is not watching
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
		r := cache.NewReflectorWithOptions(source, &corev1.Event{}, &sieve{part: w.part, ctx: ctx}, cache.ReflectorOptions{Name: "triggers' events"})
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

// sieve passes on the Events that match a Trigger. It stores no Events, because a cluster has tens of
// thousands.
type sieve struct {
	part *Part
	ctx  context.Context //nolint:containedctx // the reflector passes none on
}

// Transformer implements [cache.TransformingStore].
func (s *sieve) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if ev := trimmed(object); ev != nil {
			return ev, nil
		}
		return object, nil
	}
}

// Add implements [cache.ReflectorStore].
func (s *sieve) Add(object any) error { return s.Update(object) }

// Update implements [cache.ReflectorStore].
func (s *sieve) Update(object any) error {
	if ev := trimmed(object); ev != nil {
		s.part.hear(ev)
	}
	return nil
}

// UpdateResourceVersion implements [cache.ResourceVersionUpdater]. The reflector calls it after
// each Event, and sometimes without one.
func (s *sieve) UpdateResourceVersion(version string) { s.part.mark.reach(version) }

// Delete implements [cache.ReflectorStore].
func (s *sieve) Delete(any) error { return nil }

// Replace implements [cache.ReflectorStore]. It receives all existing Events at the start and after
// a gap. Those up to the mark were already handled, maybe by an earlier leader. It may block on the
// rest, because the watch continues after the list.
func (s *sieve) Replace(all []any, version string) error {
	s.part.counts.watches.Set(1)
	since := s.part.mark.since(version)
	for _, object := range all {
		ev := trimmed(object)
		if ev == nil || since != "" && !after(ev.ResourceVersion, since) {
			continue
		}
		asked, trusted := s.part.asksFor(ev)
		if !asked {
			continue
		}
		s.part.mark.take(ev, "", trusted)
		select {
		case s.part.events <- ev:
			s.part.counts.matched.Inc()
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	s.part.mark.reach(version)
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *sieve) Resync() error { return nil }

// trimmed returns an Event with the fields that Triggers match and Diagnoses report, or nil if object
// is not an Event.
func trimmed(object any) *corev1.Event {
	ev, ok := object.(*corev1.Event)
	if !ok {
		return nil
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: ev.Name, Namespace: ev.Namespace, UID: ev.UID, CreationTimestamp: ev.CreationTimestamp, ResourceVersion: ev.ResourceVersion,
		},
		InvolvedObject: ev.InvolvedObject, Reason: ev.Reason, Message: ev.Message, Source: ev.Source, ReportingController: ev.ReportingController,
		FirstTimestamp: ev.FirstTimestamp, LastTimestamp: ev.LastTimestamp, EventTime: ev.EventTime, Series: ev.Series,
	}
}

// asksFor reports whether a Trigger matches an Event, and whether one of these trusts its namespace.
func (p *Part) asksFor(ev *corev1.Event) (asked, trusted bool) {
	matchers := p.matchers.Load()
	if matchers == nil {
		return false, false
	}
	for _, m := range *matchers {
		matches, trusts := m.MatchesEvent(ev)
		asked, trusted = asked || matches, trusted || trusts
	}
	return asked, trusted
}

// hear queues an Event if a Trigger matches it. It must not block, or the watch would end.
func (p *Part) hear(ev *corev1.Event) {
	asked, trusted := p.asksFor(ev)
	if !asked {
		return
	}
	crowded := !trusted && p.mark.crowded(ev.Namespace)
	p.mark.take(ev, ev.ResourceVersion, trusted)
	if !crowded {
		select {
		case p.events <- ev:
			p.counts.matched.Inc()
			return
		default:
		}
	}
	p.mark.done(ev)
	p.counts.dropped.Inc()
	p.report.dropped.Do(func() {
		p.cfg.Log.Error("too many Events are waiting; dropping some", "most", maxEvents, "event", ev.Namespace+"/"+ev.Name)
	})
}

// hearAll handles Events until the context ends.
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
			p.enqueue("event", func(e *trigger.Engine) []*v1alpha1.Diagnosis {
				p.mark.done(ev) // so that the saved state has both or neither
				return e.KubeEvent(ev, known, p.cfg.Now())
			})
		case <-ctx.Done():
			return
		}
	}
}

// podsOfEvent looks up the Event's pod. If that fails, the pod is unknown.
func (p *Part) podsOfEvent(ctx context.Context, ev *corev1.Event) trigger.Known {
	var asked []types.NamespacedName
	p.look(func(e *trigger.Engine) { asked = e.PodsOfEvent(ev, p.cfg.Now()) })
	pods := make(map[types.NamespacedName]*trigger.Pod, len(asked))
	for _, name := range asked {
		for try := range podTries {
			pod, err := p.pod(ctx, name)
			if err == nil {
				pods[name] = pod
				break
			}
			p.report.pods.Do(func() { p.cfg.Log.Error("can't look up the pod of an Event", "error", err) })
			select {
			case <-time.After(firstRetry << try):
			case <-ctx.Done():
			}
		}
	}
	return p.lookups(pods)
}

// mark is the resourceVersion up to which Events were handled. The next leader continues after it,
// so that no Event is decided on twice or missed.
type mark struct {
	mu      sync.Mutex
	reached string // by the watch; empty: it has not listed yet
	waits   map[*corev1.Event]waiting
}

// waiting is the record of an Event that is not decided on yet.
type waiting struct {
	before  string // the version that the watch had reached before
	trusted bool   // some Trigger trusts its namespace
}

func newMark() *mark { return &mark{waits: map[*corev1.Event]waiting{}} }

// reach records the version that the watch has reached.
func (m *mark) reach(version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = version
}

// take records an Event to decide on, and the version that the watch has reached with it; an empty
// version means that the Event comes from a list.
func (m *mark) take(ev *corev1.Event, version string, trusted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[ev] = waiting{before: m.reached, trusted: trusted}
	if version != "" {
		m.reached = version
	}
}

// done removes an Event that was decided on, or dropped.
func (m *mark) done(ev *corev1.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, ev)
}

// crowded reports whether so many Events wait that an untrusted namespace must leave room for others.
func (m *mark) crowded(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, all := 0, 0
	for ev, w := range m.waits {
		if !w.trusted {
			all++
			if ev.Namespace == namespace {
				own++
			}
		}
	}
	return trigger.Crowded(maxEvents, own, all)
}

// version returns the mark; empty: there is none.
func (m *mark) version() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lowest := m.reached
	for _, w := range m.waits {
		if w.before == "" || !after(w.before, lowest) {
			lowest = w.before
		}
	}
	return lowest
}

// since returns the version after which the Events of a list must be handled; empty: all of them.
// If the list is older than the mark, the API server's data was restored from a backup and versions
// are not comparable, so the mark is reset.
func (m *mark) since(listed string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached != "" && after(m.reached, listed) {
		m.reached = ""
	}
	return m.reached
}

// after reports whether a version is later than another. An invalid version counts as later.
func after(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}
