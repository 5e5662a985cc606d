package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster = kubetest.Shared{Own: true} // the controller handles all Diagnoses

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(cluster.Run(m))
}

// deadline is for what takes seconds at most on an idle machine.
const deadline = 90 * time.Second

// bench is a system namespace. Tests of the package run one after the other, because a controller
// handles all Diagnoses of the cluster.
type bench struct {
	t         testing.TB
	server    *kubetest.Server
	client    client.Client
	namespace string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	server := cluster.Server(t)
	server.CRDs(t)
	return benchOn(t, server)
}

func benchOn(t testing.TB, server *kubetest.Server) *bench {
	t.Helper()
	return &bench{t: t, server: server, client: apitest.Client(t, server.Admin()), namespace: server.Namespace(t)}
}

// running is a running controller.
type running struct {
	registry *prometheus.Registry
	cancel   context.CancelFunc
	ended    chan error
	mu       sync.Mutex
	missing  []string // kinds that were reported as missing
}

// how is the configuration of a controller.
type how struct {
	to       *rest.Config
	election leader.Election
	change   func(*controller.Config)
}

func (b *bench) control(change func(*controller.Config)) *running {
	b.t.Helper()
	return b.controlAs(how{change: change})
}

func (b *bench) controlAs(h how) *running {
	b.t.Helper()
	r := &running{registry: prometheus.NewPedanticRegistry(), ended: make(chan error, 1)}
	c := controller.Config{
		Namespace: b.namespace, Builtins: catalog.All(operation.Host{}), Metrics: r.registry,
		Log: slog.New(slog.NewTextHandler(testenv.Output(b.t), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if h.change != nil {
		h.change(&c)
	}
	if h.to == nil {
		h.to = b.server.Admin()
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		err := r.run(ctx, h, c)
		if err != nil && ctx.Err() == nil {
			b.t.Errorf("the controller ended: %v", err)
		}
		r.ended <- err
		close(r.ended)
	}()
	b.t.Cleanup(func() { _ = r.stop() })
	return r
}

// run runs the parts as the command does.
func (r *running) run(ctx context.Context, h how, c controller.Config) error {
	speak := liveness.Config{Namespace: c.Namespace, Pods: "app=agent", Silent: c.Silent, Log: c.Log}
	kinds, err := speak.ByObject()
	if err != nil {
		return err
	}
	maps.Copy(kinds, controller.ByObject())
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	m, err := leader.New(h.to, leader.Config{Namespace: c.Namespace, Election: h.election, ByObject: kinds, NewInformer: controller.NewInformer, Scheme: scheme, Kinds: controller.Mapper(), Log: c.Log})
	if err != nil {
		return err
	}
	if _, err := liveness.Add(m, speak); err != nil {
		return err
	}
	served := controller.Served()
	served.Every, served.Log = 200*time.Millisecond, c.Log
	served.Missing = func(kinds []string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.missing = append(r.missing, kinds...)
	}
	remove, err := leader.WhenServed(m, served, func() (func(), error) { return controller.Add(m, c) })
	if err != nil {
		return err
	}
	defer remove()
	return m.Start(ctx)
}

// stop ends the controller, and prints goroutines if that takes nearly all its allowed time.
func (r *running) stop() error {
	late := time.AfterFunc(9*time.Second, func() { _ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) })
	defer late.Stop()
	r.cancel()
	return <-r.ended
}

// count returns the sum of a metric over the given label values.
func (r *running) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return kubetest.Sum(t, r.registry, name, labels...)
}

func (b *bench) waitFor(what string, ok func() bool) {
	b.t.Helper()
	testenv.Until(b.t, what, deadline, ok)
}

// holds fails if a condition does not hold for a while.
func (b *bench) holds(what string, lasts time.Duration, ok func() bool) {
	b.t.Helper()
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if !ok() {
			b.t.Fatalf("it does not hold that %s", what)
		}
	}
}

// create creates objects.
func (b *bench) create(list ...client.Object) {
	b.t.Helper()
	for _, o := range list {
		if err := b.client.Create(context.Background(), o); err != nil {
			b.t.Fatalf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

// delete deletes an object that would otherwise exist until the test's end.
func (b *bench) delete(o client.Object) {
	b.t.Helper()
	if err := b.client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
}

// set creates an OperationSet that can be run, and returns its name.
func (b *bench) set(operations ...string) string {
	b.t.Helper()
	name := b.name("set")
	if len(operations) == 0 {
		operations = []string{"kernel-facts"}
	}
	b.create(apitest.SetOf(name, operations...))
	return name
}

// name returns a unique name.
func (b *bench) name(prefix string) string {
	return fmt.Sprintf("%s-%s-%d", prefix, b.namespace, time.Now().UnixNano())
}

// dx creates a Diagnosis in the system namespace.
func (b *bench) dx(spec v1alpha1.DiagnosisSpec, labels ...string) *v1alpha1.Diagnosis {
	b.t.Helper()
	d := b.newDx(spec, labels...)
	b.create(d)
	return d
}

func (b *bench) newDx(spec v1alpha1.DiagnosisSpec, labels ...string) *v1alpha1.Diagnosis {
	if spec.OperationSet == "" {
		spec.OperationSet = "any"
	}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: b.name("dx"), Labels: map[string]string{}}, Spec: spec}
	for i := 0; i+1 < len(labels); i += 2 {
		d.Labels[labels[i]] = labels[i+1]
	}
	return d
}

// get returns the current Diagnosis, or nil if it is gone.
func (b *bench) get(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	b.t.Helper()
	out := &v1alpha1.Diagnosis{}
	err := b.client.Get(context.Background(), client.ObjectKeyFromObject(d), out)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// is returns phase, and status and reason of the condition Complete.
func is(d *v1alpha1.Diagnosis) string {
	if d == nil {
		return "gone"
	}
	out := string(cmp.Or(d.Status.Phase, v1alpha1.PhasePending)) // not begun yet
	if c := apimeta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionComplete); c != nil {
		out += " " + string(c.Status) + " " + c.Reason
	}
	return out
}

// waitIs waits until a Diagnosis is in a state, and returns its condition's message.
func (b *bench) waitIs(d *v1alpha1.Diagnosis, want string) string {
	b.t.Helper()
	var have *v1alpha1.Diagnosis
	testenv.UntilShown(b.t, fmt.Sprintf("%s is %q", d.Name, want), deadline, func() (bool, string) {
		have = b.get(d)
		last := is(have)
		if have == nil {
			return last == want, last
		}
		return last == want, fmt.Sprintf("%q: %+v", last, have.Status.Conditions)
	})
	if have == nil {
		return ""
	}
	if c := apimeta.FindStatusCondition(have.Status.Conditions, v1alpha1.ConditionComplete); c != nil {
		return c.Message
	}
	return ""
}

// write writes a status as the node's agent does.
func (b *bench) write(d *v1alpha1.Diagnosis, change func(*v1alpha1.DiagnosisStatus)) {
	b.t.Helper()
	for {
		have := b.get(d)
		if have == nil {
			b.t.Fatalf("%s is gone", d.Name)
		}
		next := have.DeepCopy()
		change(&next.Status)
		err := b.client.Status().Patch(context.Background(), next, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			b.t.Fatal(err)
		}
	}
}

// begin begins a run, as an agent.
func begin(s *v1alpha1.DiagnosisStatus) {
	now := metav1.NowMicro()
	s.Phase, s.StartTime = v1alpha1.PhaseRunning, &now
	s.Checkpoint = &v1alpha1.Checkpoint{Holder: "agent", Time: now}
}

// finish ends a run, as an agent.
func finish(phase v1alpha1.Phase, reason string, at time.Time) func(*v1alpha1.DiagnosisStatus) {
	return func(s *v1alpha1.DiagnosisStatus) {
		t := metav1.NewMicroTime(at)
		s.Phase, s.CompletionTime = phase, &t
		if s.StartTime == nil {
			s.StartTime = &t
		}
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(at)})
	}
}

// agent renews a Node's Lease until stop is called.
func (b *bench) agent(node string) (stop func()) {
	b.t.Helper()
	api, err := kubernetes.NewForConfig(b.server.Admin())
	if err != nil {
		b.t.Fatal(err)
	}
	k, err := lease.New(lease.Config{
		Client: api, Namespace: b.namespace, Node: node, Interval: 200 * time.Millisecond, Duration: time.Second, StartJitter: -1, DrainTimeout: time.Nanosecond,
		Holder: func() string { return "agent" },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = k.Run(ctx) })
	stop = func() { cancel(); ended.Wait() }
	b.t.Cleanup(stop)
	b.waitFor("the agent reports", func() bool { return !k.Stats().LastRenewed.IsZero() })
	return stop
}

// accepted returns status and reason of the condition Accepted, and its message.
func accepted(list []metav1.Condition) (is, message string) {
	c := apimeta.FindStatusCondition(list, v1alpha1.ConditionAccepted)
	if c == nil {
		return "", ""
	}
	return string(c.Status) + " " + c.Reason, c.Message
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not have %q", text, p)
		}
	}
}
