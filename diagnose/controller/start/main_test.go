package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster = kubetest.Shared{Own: true} // the controller handles all Triggers

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(testenv.CheckLeaks(func() int {
		code := cluster.Run(m)
		http.DefaultClient.CloseIdleConnections()
		return code
	}))
}

var errCut = errors.New("the network is cut")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// link is a controller's connection to the API server.
type link struct {
	creates  atomic.Bool // creating Diagnoses fails
	pods     atomic.Bool // looking up pods fails
	all      atomic.Bool
	podsSeen atomic.Int32
	writes   atomic.Int32 // of the state
}

func (l *link) config(c *rest.Config) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			create := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/diagnoses")
			pod := r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/pods/")
			if pod {
				l.podsSeen.Add(1)
			}
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/configmaps/"+StateName) {
				l.writes.Add(1)
			}
			if l.all.Load() || create && l.creates.Load() || pod && l.pods.Load() {
				return nil, errCut
			}
			return next.RoundTrip(r)
		})
	})
	return c
}

// bench is a namespace with controllers, on a server that has only the test's Triggers.
type bench struct {
	t         testing.TB
	server    *kubetest.Server
	objects   client.Client
	namespace string
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func newBench(t testing.TB) *bench {
	t.Helper()
	server := cluster.Server(t)
	server.CRDs(t)
	c := apitest.Client(t, server.Admin())
	b := &bench{t: t, server: server, objects: c, namespace: server.Namespace(t)}
	t.Cleanup(func() { // Triggers are cluster-scoped
		if err := c.DeleteAllOf(context.Background(), &v1alpha1.Trigger{}); err != nil {
			t.Error(err)
		}
	})
	return b
}

// trigger creates a Trigger.
func (b *bench) trigger(name, spec string) *v1alpha1.Trigger {
	b.t.Helper()
	t := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &t.Spec); err != nil {
		b.t.Fatal(err)
	}
	if err := b.objects.Create(b.t.Context(), t); err != nil {
		b.t.Fatal(err)
	}
	return t
}

func (b *bench) diagnoses() []v1alpha1.Diagnosis {
	b.t.Helper()
	var list v1alpha1.DiagnosisList
	if err := b.objects.List(context.Background(), &list, client.InNamespace(b.namespace)); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

func (b *bench) only() *v1alpha1.Diagnosis {
	b.t.Helper()
	list := b.diagnoses()
	if len(list) != 1 {
		b.t.Fatalf("%d Diagnoses, want 1", len(list))
	}
	return &list[0]
}

// deadline is for what takes seconds at most on an idle machine.
const deadline = 60 * time.Second

// running is a running controller.
type running struct {
	*Part
	*link
	t        testing.TB
	registry *prometheus.Registry
	cancel   context.CancelFunc
	ended    chan error
	log      *testenv.LogBuffer
	clock    atomic.Int64 // added to the time
}

// control runs a controller and waits until it is ready.
func (b *bench) control(change func(*Config)) *running {
	b.t.Helper()
	r := b.controlIn(leader.Election{}, change)
	testenv.Until(b.t, "the controller is ready", deadline, func() bool { return r.Ready() == nil })
	return r
}

// controlBy runs a controller as another user than the administrator.
func (b *bench) controlBy(to *rest.Config) *running {
	b.t.Helper()
	r := b.controlAs(to, leader.Election{}, nil)
	testenv.Until(b.t, "the controller is ready", deadline, func() bool { return r.Ready() == nil })
	return r
}

func (b *bench) controlIn(election leader.Election, change func(*Config)) *running {
	b.t.Helper()
	return b.controlAs(b.server.Admin(), election, change)
}

func (b *bench) controlAs(as *rest.Config, election leader.Election, change func(*Config)) *running {
	b.t.Helper()
	r := &running{link: &link{}, t: b.t, registry: prometheus.NewPedanticRegistry(), ended: make(chan error, 1), log: &testenv.LogBuffer{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	c := Config{
		Namespace: b.namespace, Metrics: r.registry, Log: log, SaveEvery: 50 * time.Millisecond,
		Now: func() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) },
	}
	if change != nil {
		change(&c)
	}
	to := r.config(as)
	m, err := leader.New(to, leader.Config{Namespace: b.namespace, Election: election, Scheme: scheme(b.t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.t.Fatal(err)
	}
	var remove func()
	r.Part, remove, err = Add(m, c)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- m.Start(ctx); remove(); close(r.ended) }()
	b.t.Cleanup(func() {
		_ = r.stop()
		if b.t.Failed() {
			b.t.Log(r.log.String())
		}
	})
	return r
}

func (r *running) stop() error {
	r.cancel()
	return <-r.ended
}

// kill stops it without any further write.
func (r *running) kill() {
	r.all.Store(true)
	_ = r.stop()
}

func (r *running) metric(name string, labels ...string) float64 {
	r.t.Helper()
	return kubetest.Sum(r.t, r.registry, name, labels...)
}

func (r *running) inForce(n int) {
	r.t.Helper()
	testenv.Until(r.t, fmt.Sprintf("%d triggers are in force", n), deadline, func() bool { return r.inUse() == n })
}

// take passes alerts on like a sender that waits as long as Prometheus.
func (r *running) take(list ...*trigger.Alert) error {
	ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
	defer cancel()
	return r.Take(ctx, list)
}

func alert(starts time.Time, labels ...string) *trigger.Alert {
	a := &trigger.Alert{Labels: map[string]string{"alertname": "A"}, StartsAt: starts}
	for i := 0; i < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	return a
}

const (
	onNode = `{operationSet: s, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ^A$}, nodeNameReferenceLabel: node}}}`
	ofPod  = `{operationSet: s, sourceTemplate: {prometheusAlertTemplate: {regexp: {alertName: ^A$}, podNamespaceReferenceLabel: namespace, podNameReferenceLabel: pod}}}`
)

// mounts returns a Trigger for Events of the test's namespace.
func (b *bench) mounts() string {
	return `{operationSet: s, sourceTemplate: {kubernetesEventTemplate: {regexp: {reason: ^FailedMount$, namespace: ^` + b.namespace + `$}}}}`
}

// event creates an Event about a pod.
func (b *bench) event(pod *corev1.Pod, reason, host string) *corev1.Event {
	b.t.Helper()
	now := metav1.Now()
	ev, err := b.server.Client().CoreV1().Events(pod.Namespace).Create(b.t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Reason:         reason, Message: "MountVolume.SetUp failed", Type: "Warning", Source: corev1.EventSource{Component: "kubelet", Host: host},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return ev
}
