package leader

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

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
	twice := true // only tests add controllers with the same name
	options := controller.Options{
		Reconciler: r, MaxConcurrentReconciles: workers, SkipNameValidation: &twice, CacheSyncTimeout: syncTimeout,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
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
