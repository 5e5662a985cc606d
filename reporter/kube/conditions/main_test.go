package conditions

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// deadline is for things that take milliseconds on an idle machine.
const deadline = 30 * time.Second

// rig is a Patcher with its Node, and clients that watch it.
type rig struct {
	*Patcher
	t      testing.TB
	server *kubetest.Server
	node   string
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	acks []Ack
}

// start runs a Patcher, by default on its own Node with short times.
func start(t testing.TB, server *kubetest.Server, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, server: server}
	c := Config{
		Client: server.Client(), Coalesce: 10 * time.Millisecond, StartJitter: -1,
		OnAck: func(a Ack) { r.mu.Lock(); defer r.mu.Unlock(); r.acks = append(r.acks, a) },
	}
	if change != nil {
		change(&c)
	}
	if c.Node == "" {
		c.Node = server.Node(t)
	}
	r.node = c.Node
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Patcher = p
	r.run()
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	go func() {
		defer close(r.ended)
		_ = r.Run(ctx)
	}()
	r.t.Cleanup(r.stop)
}

func (r *rig) stop() { r.cancel(); <-r.ended }

func (r *rig) set(list ...problem.Condition) {
	r.t.Helper()
	if err := r.Set(list); err != nil {
		r.t.Error(err)
	}
}

// status returns a condition from the API, or nil.
func (r *rig) status(conditionType string) *corev1.NodeCondition {
	r.t.Helper()
	return status(r.t, r.server.Client(), r.node, conditionType)
}

func status(t testing.TB, client kubernetes.Interface, node, conditionType string) *corev1.NodeCondition {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// waitFor waits until ok returns true.
func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	testenv.UntilShown(r.t, what, deadline, func() (bool, string) { return ok(), fmt.Sprintf("%+v", r.Stats()) })
}

// waitStatus waits until the API has a condition.
func (r *rig) waitStatus(want problem.Condition) *corev1.NodeCondition {
	r.t.Helper()
	var got *corev1.NodeCondition
	r.waitFor(fmt.Sprintf("%s is %s %s", want.Type, want.Status, want.Reason), func() bool {
		got = r.status(want.Type)
		return got != nil && says(got, &want)
	})
	return got
}

// waitAcked waits until the Patcher reports that the API has all conditions.
func (r *rig) waitAcked() {
	r.t.Helper()
	r.waitFor("all is acknowledged", func() bool { return !r.Stats().Pending })
}

// overwrite patches a condition as another client.
func overwrite(t testing.TB, client kubernetes.Interface, node, manager, condition string) {
	t.Helper()
	_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[`+condition+`]}}`), metav1.PatchOptions{FieldManager: manager}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

func cond(conditionType string, status problem.Status, reason string) problem.Condition {
	return problem.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: "message of " + reason,
		LastTransition: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	}
}

// proxy records when each patch arrived.
type proxy struct {
	*kubetest.Proxy

	mu      sync.Mutex
	patches []time.Time
}

func newProxy(t testing.TB, server *kubetest.Server) (*proxy, *rest.Config) {
	t.Helper()
	through, config := kubetest.NewProxy(t, server, server.Admin())
	p := &proxy{Proxy: through}
	p.do(func(http.ResponseWriter, *http.Request) bool { return false })
	return p, config
}

func (p *proxy) do(harm func(http.ResponseWriter, *http.Request) bool) {
	p.Do(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			p.mu.Lock()
			p.patches = append(p.patches, time.Now())
			p.mu.Unlock()
		}
		return harm(w, r)
	})
}

func (p *proxy) sent() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.patches)
}

// watchNode returns the changes of a Node as a watch delivers them.
func watchNode(t testing.TB, client kubernetes.Interface, node string) <-chan *corev1.Node {
	t.Helper()
	w, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", node).String(), ResourceVersion: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	out := make(chan *corev1.Node, 1000)
	go func() {
		defer close(out)
		for e := range w.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				out <- n
			}
		}
	}()
	return out
}
