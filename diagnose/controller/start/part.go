package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/leader"
)

const (
	// StateName is the name of the ConfigMap with the engine's state.
	StateName = "kernosis-trigger-state"

	// maxQueue bounds the Diagnoses waiting to be created, maxEvents the Events waiting to be
	// handled.
	maxQueue  = 1024
	maxEvents = 1024
	// makers and eventWorkers are how many requests of each kind run in parallel.
	makers, eventWorkers = 4, 4
	// A Diagnosis that can't be created is retried after firstRetry, then with doubled pauses up to
	// lastRetry, and dropped after giveUpAfter: an alert may be over by then.
	firstRetry, lastRetry = 200 * time.Millisecond, 30 * time.Second
	giveUpAfter           = time.Hour

	makeWithin = 10 * time.Second
	podWithin  = 2 * time.Second // an alert's sender waits
	// podTries is how often the pod of an Event is looked up. A failed look-up is retried because an
	// Event is not sent again.
	podTries = 4

	defaultSaveEvery = 5 * time.Second
	// longestNap bounds how long cron sleeps, because the clock may be set.
	longestNap = time.Minute
)

// Config configures the part. Namespace is required.
type Config struct {
	Namespace string // the system namespace
	Alerts    AlertsConfig
	// Installed is closed once the API server serves the kinds of diagnoses; nil: it already does.
	Installed <-chan struct{}
	// SaveEvery is the shortest interval between saves of the state; 0: 5 s.
	SaveEvery time.Duration
	// Now is the clock. Its location is the time zone of schedules that name none; nil: the
	// system's clock.
	Now func() time.Time

	Metrics prometheus.Registerer // nil: nowhere
	Log     *slog.Logger          // nil: no log
}

func (c *Config) setDefaults() error {
	if c.Namespace == "" {
		return errors.New("no namespace")
	}
	c.SaveEvery = cmp.Or(c.SaveEvery, defaultSaveEvery)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return nil
}

// Part creates Diagnoses. It is a [taker].
type Part struct {
	cfg     Config
	cache   cache.Cache
	api     kubernetes.Interface
	objects client.Client
	live    client.Reader // reads from the API server
	counts  *counts
	queue   *queue
	state   *store
	notLed  atomic.Pointer[notNow] // nil: alerts can be taken

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

// Add adds the part to a manager, which runs it while it leads, and the server that receives alerts.
// The manager's scheme must have the API's kinds. The metrics stay registered until remove is called.
func Add(m manager.Manager, c Config) (p *Part, remove func(), err error) {
	if p, err = newPart(m, c); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	if c.Alerts.Listen != "" {
		if err := p.receive(m); err != nil {
			return nil, nil, fmt.Errorf("alerts: %w", err)
		}
	}
	if remove, err = leader.Register(c.Metrics, p.counts); err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	return p, remove, nil
}

func newPart(m manager.Manager, c Config) (*Part, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
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
	p.notLed.Store(&notNow{why: "this instance of the controller is not the leader", after: time.Second})
	return p, m.Add(p)
}

// receive adds the server that receives alerts. Its client has its own rate limit, so that senders
// don't wait for other requests.
func (p *Part) receive(m manager.Manager) error {
	api, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return err
	}
	s, err := newServer(p.cfg.Alerts, p, api, p.cfg.Log)
	if err != nil {
		return err
	}
	p.counts.MustRegister(s.counts)
	return m.Add(s)
}

// Start runs the part until the context ends. The manager calls it when it becomes the leader.
func (p *Part) Start(ctx context.Context) error {
	if p.cfg.Installed != nil {
		p.notLed.Store(&notNow{why: "the CRDs of diagnoses are not installed", after: 10 * time.Second})
		select {
		case <-p.cfg.Installed:
		case <-ctx.Done():
			return nil
		}
	}
	p.notLed.Store(&notNow{why: "the controller is starting", after: time.Second})
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
	p.notLed.Store(&notNow{why: "the controller is shutting down", after: time.Second})
	p.queue.close()
	watch.stop()
	parts.Wait()
	return nil
}

// Ready implements [taker].
func (p *Part) Ready() error {
	if u := p.notLed.Load(); u != nil {
		return u
	}
	return nil
}

// enqueue runs the engine and queues the Diagnoses that it wants. cause identifies them in the queue:
// all Diagnoses with the same cause share it.
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
