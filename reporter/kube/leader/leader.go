// Package leader creates the manager in which the parts of the controller run. Only one of
// several processes is active, and all parts share one cache of the watched objects.
package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// ElectionName is the name of the election's Lease. No agent's Lease can have this name.
const ElectionName = "controller.kernosis.io"

// Config configures a manager.
type Config struct {
	Namespace string // of the Lease of the election
	Election  Election
	// HealthListen is an address; empty: none. Health is at /healthz and /readyz.
	HealthListen string
	// Scheme has the kinds that are watched; nil: only Kubernetes' own.
	Scheme *runtime.Scheme
	// Kinds maps those kinds of ByObject that the API server may not serve yet; see [WhenServed].
	// May be nil.
	Kinds meta.RESTMapper
	// ByObject configures what the cache keeps of the watched kinds.
	ByObject map[client.Object]cache.ByObject
	// NewInformer creates the cache's informers; nil: client-go's default.
	NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
	Log         *slog.Logger // nil: none
}

// Election configures the election of one controller among several.
type Election struct {
	Enabled bool
	// Identity identifies this process; empty: the host's name and a random text.
	Identity string
	// Zero: 15 s, 10 s, 2 s.
	Lease, Renew, Retry time.Duration
}

// New returns a manager. Its Start runs the added parts until its context ends, and then returns nil.
// With an election, it waits until it is elected; Start returns an error when it loses the election.
func New(to *rest.Config, c Config) (manager.Manager, error) {
	m, err := c.manager(to)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return m, nil
}

func (c *Config) manager(to *rest.Config) (manager.Manager, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	o := manager.Options{
		Scheme:                 c.Scheme,
		Cache:                  cache.Options{ByObject: c.ByObject, NewInformer: c.NewInformer},
		Logger:                 logr.FromSlogHandler(c.Log.Handler()),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: cmp.Or(c.HealthListen, "0"), // 0: none; empty: its own default
	}
	// With the priority queue of this version workers may wait for ever at shutdown
	// (kubernetes-sigs/controller-runtime#3538). v0.25 fixes that, but needs another minor
	// version of Kubernetes' libraries.
	o.Controller.UsePriorityQueue = new(false)
	o.GracefulShutdownTimeout = new(10 * time.Second) // for pending writes
	var early earlyMapper
	if c.Kinds != nil {
		o.MapperProvider = func(to *rest.Config, client *http.Client) (meta.RESTMapper, error) {
			served, err := apiutil.NewDynamicRESTMapper(to, client)
			early.RESTMapper, early.kinds = served, c.Kinds
			return &early, err
		}
	}
	if c.Election.Enabled {
		e := &c.Election
		e.Lease, e.Renew, e.Retry = cmp.Or(e.Lease, 15*time.Second), cmp.Or(e.Renew, 10*time.Second), cmp.Or(e.Retry, 2*time.Second)
		lock, err := e.lock(to, c.Namespace)
		if err != nil {
			return nil, err
		}
		o.LeaderElection, o.LeaderElectionResourceLockInterface = true, lock
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &e.Lease, &e.Renew, &e.Retry
		// This is safe because the process ends after Start has returned and writes nothing more.
		o.LeaderElectionReleaseOnCancel = true
	}
	m, err := manager.New(to, o)
	if err != nil {
		return nil, err
	}
	early.made.Store(true)
	return m, errors.Join(m.AddHealthzCheck("ping", healthz.Ping), m.AddReadyzCheck("caches", synced(m.GetCache())))
}

// earlyMapper maps kinds that the API server does not serve yet. It does so only while the manager is
// created, because its cache needs to know which kinds are namespaced. After that it asks only the
// API server, so that a watch of an unserved kind is an error and nothing waits for it.
type earlyMapper struct {
	meta.RESTMapper
	kinds meta.RESTMapper
	made  atomic.Bool
}

// RESTMapping implements [meta.RESTMapper].
func (m *earlyMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if !m.made.Load() {
		if known, err := m.kinds.RESTMapping(kind, versions...); err == nil {
			return known, nil
		}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

// lock returns the Lease of the election. It has its own client, so that requests waiting for
// another client's rate limit do not cost the leadership.
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

// synced returns a check that is ready when all watched objects have been listed. A process that
// waits to be elected watches nothing, and is ready.
func synced(c cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 100*time.Millisecond)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("some of the watched objects have not been listed yet")
		}
		return nil
	}
}

const (
	// Failures are retried after firstRetry, then twice as long, at most lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, 30 * time.Second
	// syncTimeout is practically unlimited: if a list takes minutes, or permission is revoked,
	// the rest of the process must go on. The problem is logged, and the process isn't ready.
	syncTimeout = 365 * 24 * time.Hour
)

// Reconcile adds a reconciler with the sources that it watches to a manager. It reconciles
// nothing before all of them have been listed, so it must be added last.
func Reconcile(m manager.Manager, name string, workers int, r reconcile.Reconciler, watched ...source.Source) error {
	options := controller.Options{
		Reconciler: r, MaxConcurrentReconciles: workers, CacheSyncTimeout: syncTimeout,
		SkipNameValidation: new(true), // tests add controllers with the same name
		RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
	options.DefaultFromConfig(m.GetControllerOptions())
	work, err := controller.NewUnmanaged(name, options)
	if err != nil {
		return err
	}
	for _, s := range watched {
		if err := work.Watch(s); err != nil {
			return err
		}
	}
	return m.Add(work)
}
