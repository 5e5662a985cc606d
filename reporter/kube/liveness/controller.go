package liveness

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kernosis/kernosis/reporter/kube/leader"
)

// name is the controller's name in logs and metrics.
const name = "liveness"

// ByObject returns the cache configuration for the kinds that the controller watches. Pass it to
// the manager that the controller is added to.
func (c *Config) ByObject() (map[client.Object]cache.ByObject, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	pods, err := labels.Parse(c.Pods)
	if err != nil {
		return nil, fmt.Errorf("liveness: pods: %w", err)
	}
	return byObject(c.Namespace, pods), nil
}

// Add adds the controller to a manager, which runs it. Its metrics stay registered until remove
// is called.
func Add(m manager.Manager, c Config) (remove func(), err error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	t, err := add(m, &c)
	if err != nil {
		return nil, fmt.Errorf("liveness: %w", err)
	}
	if remove, err = leader.Register(c.Metrics, newCollector(t.counts, t.tracker)); err != nil {
		return nil, fmt.Errorf("liveness: %w", err)
	}
	return remove, nil
}

// add adds the reconciler to a manager.
func add(m manager.Manager, c *Config) (*reconciler, error) {
	api, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	pods, err := labels.Parse(c.Pods)
	if err != nil {
		return nil, err
	}
	r := &reconciler{
		config: c, tracker: newTracker(c.periods(), c.Types), nodes: m.GetCache(), client: api,
		counts: newCounts(), limiters: map[string]*rate.Limiter{}, refused: map[string]time.Time{},
	}
	cache := m.GetCache()
	return r, leader.Reconcile(m, name, c.Workers, r,
		source.Kind(cache, &corev1.Node{}, r.tracker.nodeHandler()),
		source.Kind(cache, &coordinationv1.Lease{}, r.tracker.leaseHandler()),
		source.Kind(cache, &corev1.Pod{}, r.tracker.podHandler()),
		source.Kind(cache, &appsv1.DaemonSet{}, r.tracker.setHandler(pods)))
}
