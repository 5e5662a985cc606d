package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
)

const (
	// byNode is the index of Diagnoses by their node.
	byNode = "repair.spec.nodeName"
	// workers is how many Diagnoses are reconciled in parallel. Few repairs run at a time, because
	// budgets are small.
	workers = 4
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the system; Diagnoses in other namespaces repair nothing
	Pods      string // label selector of the agents' pods, besides those of the Helm chart
	// DryRun only reports what the controller would change on Nodes and pods. Repairs that agents
	// make are not affected.
	DryRun bool
	// Holder names this process in the slots that it holds. "": the host name and a random suffix.
	Holder string
	// Every is how often slots and waiting repairs are checked again without any change; 0: 30 s.
	Every time.Duration
	// Look is the first pause before ending pods are checked again; 0: 5 s, as kubectl's after a
	// refused eviction. The pauses grow to six times that.
	Look time.Duration
	Now  func() time.Time // nil: [time.Now]
	// Metrics is where the controller's metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: no log
}

func (c *Config) setDefaults() error {
	if c.Namespace == "" {
		return errors.New("no namespace")
	}
	c.Every, c.Look = cmp.Or(c.Every, 30*time.Second), cmp.Or(c.Look, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("host name: %w", err)
		}
		c.Holder = host + "_" + uuid.NewString()
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return nil
}

// Add adds the controller to a manager, which runs it while it leads. The manager's scheme must
// have v1alpha1, its cache must keep at least the fields of Nodes that package liveness keeps, and have
// the index [controller.IndexParent].
// The metrics stay registered until remove is called.
func Add(m manager.Manager, c Config) (remove func(), err error) {
	if remove, err = add(m, &c); err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	return remove, nil
}

func add(m manager.Manager, c *Config) (remove func(), err error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	api, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	actions, err := NewActions(api, *c)
	if err != nil {
		return nil, err
	}
	r := &reconciler{
		config: c, client: m.GetClient(), live: m.GetAPIReader(), actions: actions,
		builtins: catalog.All(operation.Host{}), counts: newCounts(),
		reporter: &reporter{recorder: m.GetEventRecorder(lease.Controller)},
		interest: map[types.NamespacedName]interest{}, inputs: map[types.NamespacedName]inputs{}, contests: map[types.UID]contest{},
		reported: map[string]reported{},
		budget:   &policy.Budget{Reader: m.GetAPIReader(), Writer: m.GetClient().Status(), Holder: c.Holder, Now: c.Now},
	}
	r.budget.TakenOver = r.takenOver
	node := func(o client.Object) []string { return []string{o.(*v1alpha1.Diagnosis).Spec.NodeName} }
	if err := m.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Diagnosis{}, byNode, node); err != nil {
		return nil, err
	}
	if err := r.watch(m); err != nil {
		return nil, err
	}
	r.counts.MustRegister(r)
	return leader.Register(c.Metrics, r.counts)
}

// watch registers the three reconcilers: of Diagnoses, of policies and of nodes' marks.
func (r *reconciler) watch(m manager.Manager) error {
	c := m.GetCache()
	return errors.Join(
		leader.Reconcile(m, "repair", workers, r,
			source.Kind(c, &v1alpha1.Diagnosis{}, controller.OnChange(r.onDiagnosis)),
			source.Func(func(_ context.Context, q controller.Queue) error { r.queue = q; return nil }),
			source.Kind(c, &corev1.Node{}, r.onNode(r.about, wakeAll())),
			source.Kind(c, &v1alpha1.RemediationPolicy{}, controller.OnChange(r.onPolicy)),
			source.Kind(c, &v1alpha1.OperationSet{}, onAny[*v1alpha1.OperationSet](r.waiting)),
			source.Kind(c, &v1alpha1.Operation{}, onAny[*v1alpha1.Operation](r.waiting))),
		leader.Reconcile(m, "repair-policies", 1, reconcile.Func(r.reconcilePolicy),
			source.Kind(c, &v1alpha1.RemediationPolicy{}, &handler.TypedEnqueueRequestForObject[*v1alpha1.RemediationPolicy]{}),
			source.Kind(c, &corev1.Node{}, r.onNode(r.allPolicies))),
		leader.Reconcile(m, "repair-marks", 1, reconcile.Func(r.reconcileNode),
			source.Kind(c, &corev1.Node{}, &handler.TypedEnqueueRequestForObject[*corev1.Node]{})),
	)
}

// reconciler implements all three reconcilers. Several goroutines use it, but only one at a time
// per object.
type reconciler struct {
	config   *Config
	client   client.Client // reads from the cache
	live     client.Reader // reads from the API server
	actions  *Actions
	builtins []operation.Builtin
	budget   *policy.Budget
	reporter *reporter
	counts   *counts
	running  atomic.Bool // it leads, and its caches are synced
	views    views
	queue    controller.Queue // of Diagnoses
	// reported is by policy. Only the goroutine that reconciles policies uses it.
	reported map[string]reported
	// took has the Diagnoses with a slot that the cached policy may not show yet. ended has when this
	// controller first found a Diagnosis with a slot ended, by its own clock.
	took, ended sync.Map

	mu       sync.Mutex
	interest map[types.NamespacedName]interest
	inputs   map[types.NamespacedName]inputs // of repairs that wait
	// contests are about slots that another controller holds or held.
	contests map[types.UID]contest
}

// interest is which changes require reconciling a Diagnosis again.
type interest struct {
	node  string // a change of this node
	waits bool   // any change: its repair waits
	// full is the policy with the exhausted budget that the repair waits for: until that budget has
	// room, changes of other nodes and of slots do not matter.
	full string
}

func (r *reconciler) note(key types.NamespacedName, i interest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i == (interest{}) {
		delete(r.interest, key)
		delete(r.inputs, key)
		return
	}
	r.interest[key] = i
}

// about returns the Diagnoses that a change of the node affects.
func (r *reconciler) about(_ context.Context, node string) []reconcile.Request {
	return r.interested(func(i interest) bool { return i.node == node })
}

// waiting returns all Diagnoses whose repair waits.
func (r *reconciler) waiting() []reconcile.Request {
	return r.interested(func(i interest) bool { return i.waits })
}

func (r *reconciler) interested(in func(interest) bool) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []reconcile.Request
	for key, i := range r.interest {
		if in(i) {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

// wakeAfter is how long changes of nodes and slots are gathered before the Diagnoses that wait for
// them are reconciled.
const wakeAfter = 100 * time.Millisecond

// wakeAll returns the request to reconcile all Diagnoses whose repair waits, except those whose
// budget is still exhausted.
func wakeAll() reconcile.Request { return reconcile.Request{} }

// wake enqueues the Diagnoses that wakeAll requests.
func (r *reconciler) wake(ctx context.Context) error {
	v, err := r.view(ctx)
	if err != nil {
		return err
	}
	ready := func(i interest) bool { return i.waits && (i.full == "" || !v.exhausted(i.full, i.node)) }
	for _, request := range r.interested(ready) {
		r.queue.Add(request)
	}
	return nil
}

// allPolicies returns requests for all policies, because a node's change may matter to each. It
// blocks until they are listed or ctx ends.
func (r *reconciler) allPolicies(ctx context.Context, _ string) []reconcile.Request {
	all, err := r.policies(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.config.Log.Warn("can't list policies", "error", err) // they are also reconciled periodically
		}
		return nil
	}
	var out []reconcile.Request
	for _, p := range all {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
	}
	return out
}
