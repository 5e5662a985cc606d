package start

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kernosis/kernosis/diagnose/alerts"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/leader"
)

// Part creates Diagnoses. It is an [alerts.Taker].
type Part struct {
	cfg     Config
	cache   cache.Cache
	api     kubernetes.Interface
	objects client.Client
	live    client.Reader // reads from the API server
	counts  *counts
	queue   *queue
	state   *store
	notLed  atomic.Pointer[alerts.Unavailable] // nil: alerts can be taken

	mu     sync.Mutex
	engine *trigger.Engine

	reporting sync.Mutex // serializes writes of what alerts report

	mark     *mark                              // of Events
	matchers atomic.Pointer[[]*trigger.Matcher] // those about Events
	events   chan *corev1.Event
	changed  chan struct{} // receives when the triggers have changed
	compiled map[string]compiled
	report   struct{ dropped, pods, problems rate.Sometimes }
}

// Add adds the part to a manager, which runs it while it leads. The manager's scheme must have the
// API's kinds. The metrics stay registered until remove is called.
func Add(m manager.Manager, c Config) (p *Part, remove func(), err error) {
	p, err = add(m, c)
	if err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	if remove, err = leader.Register(p.cfg.Metrics, p.counts); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	return p, remove, nil
}

func add(m manager.Manager, c Config) (*Part, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	for _, kind := range []string{v1alpha1.KindTrigger, v1alpha1.KindDiagnosis} {
		gv := v1alpha1.GroupVersion()
		if kind := (schema.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: kind}); !m.GetScheme().Recognizes(kind) {
			return nil, fmt.Errorf("the manager's scheme does not have the kind %s", kind)
		}
	}
	to := rest.CopyConfig(m.GetConfig())
	// Use protobuf, because there are many Events.
	to.ContentType, to.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	api, err := kubernetes.NewForConfigAndClient(to, m.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	engine, err := trigger.NewEngine(trigger.Config{Namespace: c.Namespace})
	if err != nil {
		return nil, err
	}
	p := &Part{
		cfg: c, cache: m.GetCache(), api: api, objects: m.GetClient(), live: m.GetAPIReader(), engine: engine, queue: newQueue(), mark: newMark(),
		events: make(chan *corev1.Event, maxEvents), changed: make(chan struct{}, 1), compiled: map[string]compiled{},
	}
	for _, s := range []*rate.Sometimes{&p.report.dropped, &p.report.pods, &p.report.problems} {
		s.First, s.Interval = 1, 10*time.Second
	}
	p.counts, p.state = newCounts(p), newStore(p)
	p.notLed.Store(&alerts.Unavailable{Why: "this instance of the controller is not the leader", After: time.Second})
	return p, m.Add(p)
}

// Start runs the part until the context ends. The manager calls it when it becomes the leader.
func (p *Part) Start(ctx context.Context) error {
	if p.cfg.Installed != nil {
		p.notLed.Store(&alerts.Unavailable{Why: "the CRDs of diagnoses are not installed", After: 10 * time.Second})
		select {
		case <-p.cfg.Installed:
		case <-ctx.Done():
			return nil
		}
	}
	p.notLed.Store(&alerts.Unavailable{Why: "the controller is starting", After: time.Second})
	triggers, ok := p.watchTriggers(ctx)
	if !ok {
		return nil // the context ended before there were any
	}
	if !p.state.open(ctx) {
		return nil
	}
	p.install(ctx)
	p.cfg.Log.Info("alerts, Events and schedules start diagnoses", "triggers", p.inUse())
	p.notLed.Store(nil)
	var parts sync.WaitGroup
	for range makers {
		parts.Go(func() { p.makeAll(ctx) })
	}
	for range eventWorkers {
		parts.Go(func() { p.hearAll(ctx) })
	}
	parts.Go(func() { p.tick(ctx) })
	parts.Go(func() { p.state.keep(ctx) })
	watch := &eventWatch{part: p}
	watch.set(ctx, p.wantsEvents())
	for {
		select {
		case <-triggers:
			p.install(ctx)
			watch.set(ctx, p.wantsEvents())
			continue
		case <-ctx.Done():
		}
		break
	}
	p.notLed.Store(&alerts.Unavailable{Why: "the controller is shutting down", After: time.Second})
	p.queue.close()
	watch.stop()
	parts.Wait()
	return nil
}

// Ready implements [alerts.Taker].
func (p *Part) Ready() error {
	if u := p.notLed.Load(); u != nil {
		return u
	}
	return nil
}

// enqueue runs the engine and queues the Diagnoses that it wants. cause identifies them in the
// queue: all that follow from the same cause share it.
func (p *Part) enqueue(cause string, decide func(*trigger.Engine) []*v1alpha1.Diagnosis) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Both under the lock, so that no state is saved in between.
	p.queue.add(cause, decide(p.engine), p.cfg.Now())
}

// look reads from the engine.
func (p *Part) look(f func(*trigger.Engine)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.engine)
}
