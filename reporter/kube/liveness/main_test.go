package liveness

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster = kubetest.Shared{Own: true} // the controller acts on all nodes

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(cluster.Run(m))
}

// deadline is for things that take seconds at most on an idle machine.
const deadline = 60 * time.Second

// beat is how often agents in tests renew, and quiet the controller's period: far longer, because
// the machine may be busy.
const (
	beat  = 100 * time.Millisecond
	quiet = 4 * time.Second
)

var errCut = errors.New("the network is cut")

// link is a process's connection to the API server.
type link struct {
	mu   sync.Mutex
	cut  bool
	harm func(*http.Request) *http.Response // returns the response to replace a request's, or nil; may be nil
}

func (l *link) config(c *rest.Config) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			l.mu.Lock()
			cut, harm := l.cut, l.harm
			l.mu.Unlock()
			if cut {
				return nil, errCut
			}
			if harm != nil {
				if answer := harm(r); answer != nil {
					return answer, nil
				}
			}
			return next.RoundTrip(r)
		})
	})
	return c
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// refusal returns an error response of the API server. Flow control sends text instead of a
// Status, and asks to wait a second.
func refusal(code int) *http.Response {
	if code == http.StatusTooManyRequests {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}, "Retry-After": {"1"}},
			Body: io.NopCloser(strings.NewReader("Too many requests, please try again later.")),
		}
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as asked","code":` + strconv.Itoa(code) + `}`)),
	}
}

// bench is a namespace with agents and controllers.
type bench struct {
	t         testing.TB
	server    *kubetest.Server
	client    *kubernetes.Clientset
	namespace string
	// drainTimeout is how long an ending agent tries to mark its Lease. Agents that are cut off
	// use up all of it.
	drainTimeout time.Duration
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, cluster.Server(t))
}

func newBenchOn(t testing.TB, server *kubetest.Server) *bench {
	t.Helper()
	return &bench{t: t, server: server, client: server.Client(), namespace: server.Namespace(t), drainTimeout: time.Second}
}

// running is a running controller.
type running struct {
	*link
	registry *prometheus.Registry
	cancel   context.CancelFunc
	ended    chan error
}

func (b *bench) control(change func(*Config)) *running {
	b.t.Helper()
	return b.controlIn(leader.Election{}, change)
}

// controlIn runs a controller with an election.
func (b *bench) controlIn(election leader.Election, change func(*Config)) *running {
	b.t.Helper()
	r := &running{link: &link{}, registry: prometheus.NewPedanticRegistry(), ended: make(chan error, 1)}
	c := Config{
		Namespace: b.namespace, Pods: "app=agent", Silent: quiet, Draining: 3 * quiet, StartUp: quiet, Metrics: r.registry,
		Log: slog.New(slog.NewTextHandler(testenv.Output(b.t), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	to := r.config(b.server.Admin())
	go func() { r.ended <- run(ctx, to, c, election); close(r.ended) }()
	b.t.Cleanup(func() { r.stop() })
	return r
}

// run runs a controller in its own manager.
func run(ctx context.Context, to *rest.Config, c Config, election leader.Election) error {
	kinds, err := c.ByObject()
	if err != nil {
		return err
	}
	m, err := leader.New(to, leader.Config{Namespace: c.Namespace, Election: election, ByObject: kinds, Log: c.Log})
	if err != nil {
		return err
	}
	remove, err := Add(m, c)
	if err != nil {
		return err
	}
	defer remove()
	return m.Start(ctx)
}

func (r *running) stop() error {
	r.cancel()
	return <-r.ended
}

// count returns the sum of a metric over the given label values, each preceded by its name.
func (r *running) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return kubetest.Sum(t, r.registry, name, labels...)
}

// daemon writes to the API server as an agent does, for its own Node.
type daemon struct {
	*link
	b       *bench
	node    string
	keeper  *lease.Keeper
	patcher *conditions.Patcher
	cancel  context.CancelFunc
	ended   sync.WaitGroup
}

func (b *bench) agent(node string, list ...problem.Condition) *daemon {
	b.t.Helper()
	return b.agentWith(node, nil, 0, list...)
}

// agentWith runs an agent with a health check and heartbeats.
func (b *bench) agentWith(node string, healthy func() error, heartbeat time.Duration, list ...problem.Condition) *daemon {
	b.t.Helper()
	a := &daemon{link: &link{}, b: b, node: node}
	client := kubetest.Clientset(b.t, a.config(b.server.Admin()))
	var err error
	a.patcher, err = conditions.New(conditions.Config{
		Client: client, Node: node, Coalesce: 10 * time.Millisecond, StartJitter: -1,
		Healthy: healthy, Heartbeat: heartbeat,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := a.patcher.Set(list); err != nil {
		b.t.Fatal(err)
	}
	a.keeper, err = lease.New(lease.Config{
		Client: client, Namespace: b.namespace, Node: node, Interval: beat, Duration: time.Second, StartJitter: -1, DrainTimeout: b.drainTimeout,
		Types: a.patcher.Types, OnEarlier: a.patcher.Retire, Healthy: healthy,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.ended.Go(func() { _ = a.keeper.Run(ctx) })
	a.ended.Go(func() { _ = a.patcher.Run(ctx) })
	b.t.Cleanup(a.end)
	b.waitFor("the agent reports", func() bool {
		return !a.patcher.Stats().Pending && !a.keeper.Stats().LastRenewed.IsZero()
	})
	return a
}

// end shuts the agent down cleanly, kill does not.
func (a *daemon) end()  { a.cancel(); a.ended.Wait() }
func (a *daemon) kill() { a.set(true); a.end() }

func (b *bench) waitFor(what string, ok func() bool) {
	b.t.Helper()
	testenv.Until(b.t, what, deadline, ok)
}

// holds fails if ok returns false within a time.
func (b *bench) holds(what string, lasts time.Duration, ok func() bool) {
	b.t.Helper()
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if !ok() {
			b.t.Fatalf("it does not hold that %s", what)
		}
	}
}

func (b *bench) get(node string) *corev1.Node {
	b.t.Helper()
	n, err := b.client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// has returns a condition as status and reason; empty if there is none.
func (b *bench) has(node, conditionType string) string {
	b.t.Helper()
	if c := find(b.get(node).Status.Conditions, conditionType); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func (b *bench) waitHas(node, conditionType, want string) {
	b.t.Helper()
	b.waitFor(conditionType+" is "+want, func() bool { return b.has(node, conditionType) == want })
}

// set sets a condition as another client.
func (b *bench) set(node, conditionType, status, reason string) {
	b.t.Helper()
	_, err := b.client.CoreV1().Nodes().Patch(b.t.Context(), node, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"`+conditionType+`","status":"`+status+`","reason":"`+reason+`","message":"m"}]}}`),
		metav1.PatchOptions{FieldManager: "another"}, "status")
	if err != nil {
		b.t.Fatal(err)
	}
}

// daemonPod creates a pod of the agent's DaemonSet.
func (b *bench) daemonPod(name, node string) {
	b.t.Helper()
	yes := true
	_, err := b.client.CoreV1().Pods(b.namespace).Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": "agent"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "kernosis", UID: "d", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
}

// daemonSet makes the agent's DaemonSet select some nodes by name.
func (b *bench) daemonSet(nodes ...string) {
	b.t.Helper()
	terms := []corev1.NodeSelectorTerm{}
	for _, node := range nodes {
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}})
	}
	labels := map[string]string{"app": "agent"}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kernosis"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
			Affinity:   &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}},
		}},
	}}
	sets := b.client.AppsV1().DaemonSets(b.namespace)
	_, err := sets.Create(b.t.Context(), d, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = sets.Update(b.t.Context(), d, metav1.UpdateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func cond(conditionType string, status problem.Status, reason string) problem.Condition {
	return problem.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: "message of " + reason,
		LastTransition: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	}
}

func newServer(t testing.TB) *kubetest.Server { return kubetest.New(t, kubetest.Options{}) }

func lint(r *running) ([]promlint.Problem, error) { return testutil.GatherAndLint(r.registry) }
