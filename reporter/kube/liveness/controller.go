package liveness

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

// Defaults of a [Config].
const (
	// DefaultSilent is the node lifecycle controller's default: a little more than three renewals.
	DefaultSilent = 50 * time.Second
	// DefaultDraining is longer than a node is without an agent during an upgrade.
	DefaultDraining = 5 * time.Minute
	// DefaultStartUp is longer than it takes to pull an image.
	DefaultStartUp = 2 * time.Minute
	// DefaultWorkers is the node lifecycle controller's default.
	DefaultWorkers = 8
	// DefaultSlowRate: this rate of writes of whole Nodes in a zone is no load, and if an outage ends
	// within minutes, few Nodes have been changed.
	DefaultSlowRate = 1.0
	// DefaultPods selects the pods that the Helm chart creates.
	DefaultPods = "app.kubernetes.io/name=kernosis,app.kubernetes.io/component=agent"

	// defaultTimeout of a write.
	defaultTimeout = 10 * time.Second
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the agents, and their Leases
	Pods      string // label selector of the agents' pods; empty: [DefaultPods]
	// Types are the conditions of agents that have never reported; empty: the types that most
	// reporting agents list.
	Types []string

	Silent   time.Duration // 0: [DefaultSilent]
	Draining time.Duration // 0: [DefaultDraining]
	StartUp  time.Duration // 0: [DefaultStartUp]
	Workers  int           // 0: [DefaultWorkers]
	SlowRate float64       // writes a second in a zone that is slowed; 0: [DefaultSlowRate]

	// Annotations returns the keys of a Node's annotations that other controllers of the manager need,
	// besides our own; may be nil.
	Annotations func(*corev1.Node) []string

	// Metrics registers the controller's metrics; if nil, they are not registered.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: none
}

func (c *Config) setDefaults() {
	c.Pods = cmp.Or(c.Pods, DefaultPods)
	c.Silent = cmp.Or(c.Silent, DefaultSilent)
	c.Draining = cmp.Or(c.Draining, DefaultDraining)
	c.StartUp = cmp.Or(c.StartUp, DefaultStartUp)
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	c.SlowRate = cmp.Or(c.SlowRate, DefaultSlowRate)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}

// ByObject returns the cache configuration for the kinds that the controller watches. Pass it to
// the manager that the controller is added to.
func (c *Config) ByObject() (map[client.Object]cache.ByObject, error) {
	c.setDefaults()
	pods, err := labels.Parse(c.Pods)
	if err != nil {
		return nil, fmt.Errorf("liveness: pods: %w", err)
	}
	agents := labels.SelectorFromSet(labels.Set{lease.LabelComponent: lease.ComponentAgent})
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: c.trimNode},
		&coordinationv1.Lease{}: {
			Namespaces: map[string]cache.Config{c.Namespace: {LabelSelector: agents}}, Transform: cache.TransformStripManagedFields(),
		},
		&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{c.Namespace: {LabelSelector: pods}}, Transform: trimPod,
		},
		&appsv1.DaemonSet{}: {
			Namespaces: map[string]cache.Config{c.Namespace: {}}, Transform: trimSet,
		},
	}, nil
}

// Add adds the controller to a manager, which runs it. Its metrics stay registered until remove
// is called.
func Add(m manager.Manager, c Config) (remove func(), err error) {
	c.setDefaults()
	api, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("liveness: %w", err)
	}
	pods, err := labels.Parse(c.Pods)
	if err != nil {
		return nil, fmt.Errorf("liveness: pods: %w", err)
	}
	cache := m.GetCache()
	periods := periods{silent: c.Silent, draining: c.Draining, startUp: c.StartUp}
	r := &reconciler{
		config: &c, tracker: newTracker(periods, c.Types), nodes: cache, client: api,
		counts: newCounts(), limiters: map[string]*rate.Limiter{}, refused: map[string]time.Time{},
	}
	err = leader.Reconcile(m, "liveness", c.Workers, r,
		source.Kind(cache, &corev1.Node{}, r.tracker.nodeHandler()),
		source.Kind(cache, &coordinationv1.Lease{}, r.tracker.leaseHandler()),
		source.Kind(cache, &corev1.Pod{}, r.tracker.podHandler()),
		source.Kind(cache, &appsv1.DaemonSet{}, r.tracker.setHandler(pods)))
	if err != nil {
		return nil, fmt.Errorf("liveness: %w", err)
	}
	if remove, err = leader.Register(c.Metrics, newCollector(r.counts, r.tracker)); err != nil {
		return nil, fmt.Errorf("liveness: %w", err)
	}
	return remove, nil
}
