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
	// What failed is tried again after firstRetry, then twice as long, at most lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, 30 * time.Second
	// syncTimeout is for ever: where a list takes minutes, or a right is taken away, what else
	// the process does must go on. It is logged, and the process isn't ready.
	syncTimeout = 365 * 24 * time.Hour
)

// Reconcile adds a reconciler with what it watches to a manager. Nothing is looked at before
// all of that was listed, and so it is added last.
func Reconcile(m manager.Manager, name string, workers int, r reconcile.Reconciler, watched ...source.Source) error {
	twice := true // controllers of a process are distinguished by nobody but tests
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
