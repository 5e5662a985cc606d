package liveness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// name of the controller in logs and metrics.
	name = "liveness"
	// stopWithin is how long writes that are under way may take at the end.
	stopWithin = 10 * time.Second
	// A write that failed is tried again after firstRetry, then twice as long, at most
	// lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, 30 * time.Second
)

// Run runs the controller until ctx ends, and returns nil then. Where it takes part in
// an election, it waits until it is elected; it returns an error when it is no more.
func Run(ctx context.Context, to *rest.Config, c Config) error {
	pods, err := c.setDefaults()
	if err != nil {
		return err
	}
	m, err := newManager(to, &c, pods)
	if err != nil {
		return fmt.Errorf("liveness: %w", err)
	}
	t, err := add(m, &c)
	if err != nil {
		return fmt.Errorf("liveness: %w", err)
	}
	if c.Metrics != nil {
		collector := newCollector(t.counts, t.tracker)
		if err := c.Metrics.Register(collector); err != nil {
			return fmt.Errorf("liveness: %w", err)
		}
		defer c.Metrics.Unregister(collector)
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("liveness: %w", err)
	}
	return nil
}

func newManager(to *rest.Config, c *Config, pods labels.Selector) (manager.Manager, error) {
	o := manager.Options{
		Cache:                  cacheOptions(c.Namespace, pods),
		Logger:                 logr.FromSlogHandler(c.Log.Handler()),
		Metrics:                metricsserver.Options{BindAddress: orNone(c.MetricsListen)},
		HealthProbeBindAddress: orNone(c.HealthListen),
	}
	stop := stopWithin
	o.GracefulShutdownTimeout = &stop
	if c.Election.Enabled {
		lock, err := c.Election.lock(to, c.Namespace)
		if err != nil {
			return nil, err
		}
		o.LeaderElection, o.LeaderElectionResourceLockInterface = true, lock
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &c.Election.Lease, &c.Election.Renew, &c.Election.Retry
		// Nothing is written after Start has returned: the process ends.
		o.LeaderElectionReleaseOnCancel = true
	}
	m, err := manager.New(to, o)
	if err != nil {
		return nil, err
	}
	return m, errors.Join(m.AddHealthzCheck("ping", healthz.Ping), m.AddReadyzCheck("caches", synced(m.GetCache())))
}

// synced is ready when what is watched has been listed. One that waits to be elected
// watches nothing, and is ready to.
func synced(c cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 100*time.Millisecond)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("not all that is watched has been listed")
		}
		return nil
	}
}

// lock returns the Lease of the election. It has a client of its own, so that what
// waits for a client's limit of requests does not cost the leadership.
func (e *Election) lock(to *rest.Config, namespace string) (resourcelock.Interface, error) {
	identity := e.Identity
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		identity = host + "_" + string(uuid.NewUUID())
	}
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, ElectionName,
		resourcelock.ResourceLockConfig{Identity: identity}, to, e.Renew)
}

// add adds the reconciler to a manager.
func add(m manager.Manager, c *Config) (*reconciler, error) {
	client, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	r := &reconciler{
		config: c, tracker: newTracker(c.periods(), c.Types), nodes: m.GetCache(), client: client,
		counts: newCounts(), limiters: map[string]*rate.Limiter{},
	}
	twice := true // controllers of a process are told apart by nobody but tests
	work, err := controller.New(name, m, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: c.Workers, SkipNameValidation: &twice,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	})
	if err != nil {
		return nil, err
	}
	cache := m.GetCache()
	return r, errors.Join(
		work.Watch(source.Kind(cache, &corev1.Node{}, r.tracker.nodeHandler())),
		work.Watch(source.Kind(cache, &coordinationv1.Lease{}, r.tracker.leaseHandler())),
		work.Watch(source.Kind(cache, &corev1.Pod{}, r.tracker.podHandler())),
	)
}

// orNone is an address as controller-runtime has it, to which an empty one is its own
// default.
func orNone(address string) string {
	if address == "" {
		return "0"
	}
	return address
}
