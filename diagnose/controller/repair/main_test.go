package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/liveness"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var (
	cluster = kubetest.Shared{Own: true} // the controller handles all Diagnoses
	roles   sync.Once
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(cluster.Run(m))
}

// deadline is for what takes seconds at most on an idle machine.
const deadline = 60 * time.Second

// user is the user of the tests' controllers. Their rights are exactly the documented ones.
const user = "kernosis-controller"

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// bench is a namespace with its own nodes, policies and agents.
type bench struct {
	*testing.T
	server *kubetest.Server
	client client.WithWatch
	system string // the namespace
	user   string // user of its controllers
	agents *agents
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, server: cluster.Server(t), user: user}
	b.server.CRDs(t)
	b.system = b.server.Namespace(t)
	b.client = apitest.Client(t, b.server.Admin())
	b.grant()
	b.agents = newAgents(b)
	return b
}

// grant creates the roles of the controller, except that of the election, which is tested
// elsewhere.
func (b *bench) grant() {
	b.Helper()
	roles.Do(func() {
		for _, role := range kubetest.ControllerRoles(b, "../../..") {
			if role.Kind == "ClusterRole" {
				b.server.Grant(b, user, "", role)
			}
		}
	})
}

// grantBase gives the bench's controllers a changed version of the role without repairs.
func (b *bench) grantBase(name string, change func(*rbacv1.PolicyRule)) {
	b.Helper()
	b.user = name
	for _, role := range kubetest.ControllerRoles(b, "../../..") {
		if role.Kind == "ClusterRole" && role.Name == user {
			for i := range role.Rules {
				change(&role.Rules[i])
			}
			b.server.Grant(b, name, "", role)
		}
	}
}

func (b *bench) create(o client.Object) {
	b.Helper()
	if err := b.client.Create(b.Context(), o); err != nil {
		b.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// nodes creates nodes that the bench's policies select.
func (b *bench) nodes(n int) []string {
	b.Helper()
	var names []string
	for range n {
		name := b.server.Node(b.T)
		b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"labels":{"bench":"`+b.system+`"}}}`)
		names = append(names, name)
	}
	return names
}

func (b *bench) patch(o client.Object, body string) {
	b.Helper()
	if err := b.client.Patch(b.Context(), o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.Fatal(err)
	}
}

// policy creates a policy for the bench's nodes, with a budget of one node and no cooldown.
func (b *bench) policy(change func(*v1alpha1.RemediationPolicySpec)) string {
	b.Helper()
	one, hundred := int32(1), int32(100)
	p := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{GenerateName: b.system + "-"}, Spec: v1alpha1.RemediationPolicySpec{
		Mode: v1alpha1.ModeEnforce, NodeSelector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"bench": b.system}},
		Budget: v1alpha1.Budget{MaxNodes: &one, MaxPercent: &hundred}, CooldownPerNode: &metav1.Duration{}, PauseWhenUnhealthyPercent: 100,
		VerifyWithin: metav1.Duration{Duration: testenv.Within(time.Minute)},
	}}
	if change != nil {
		change(&p.Spec)
	}
	b.create(p)
	b.Cleanup(func() {
		if err := client.IgnoreNotFound(b.client.Delete(context.WithoutCancel(b.Context()), p)); err != nil {
			b.Error(err)
		}
	})
	return p.Name
}

func (b *bench) changePolicy(name string, change func(*v1alpha1.RemediationPolicySpec)) {
	b.Helper()
	b.retry("change policy", func() error {
		p := &v1alpha1.RemediationPolicy{}
		if err := b.client.Get(b.Context(), client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		change(&p.Spec)
		return b.client.Update(b.Context(), p)
	})
}

// retry retries until do succeeds, because others write the same objects.
func (b *bench) retry(what string, do func() error) {
	b.Helper()
	var err error
	b.waitFor(what, func() bool { err = do(); return err == nil })
}

// slots returns a policy's entries as node:operation, ended ones with a +.
func (b *bench) slots(name string) string {
	b.Helper()
	p := &v1alpha1.RemediationPolicy{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: name}, p); err != nil {
		b.Fatal(err)
	}
	var out []string
	for _, r := range p.Status.Repairs {
		mark := ""
		if r.EndTime != nil {
			mark = "+"
		}
		out = append(out, r.Node+":"+r.Operation+mark)
	}
	return strings.Join(out, " ")
}

// set creates an OperationSet that runs operations one after the other, and returns its name.
func (b *bench) set(operations ...string) string {
	b.Helper()
	s := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{GenerateName: b.system + "-"}}
	s.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}}
	for i, o := range operations {
		n := v1alpha1.Node{ID: int32(i + 1), Operation: o}
		if i+1 < len(operations) {
			n.To = []int32{int32(i + 2)}
		}
		s.Spec.AdjacencyList = append(s.Spec.AdjacencyList, n)
	}
	b.create(s)
	return s.Name
}

// operation creates an Operation of a built-in with fixed parameters.
func (b *bench) operation(builtin string, parameters map[string]string) string {
	b.Helper()
	o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{GenerateName: builtin + "-"}}
	o.Spec.Processor.Builtin = &v1alpha1.Builtin{Name: builtin, Parameters: parameters}
	b.create(o)
	return o.Name
}

// diagnose creates a Diagnosis whose problem lasts.
func (b *bench) diagnose(node, set string, change func(*v1alpha1.Diagnosis)) *v1alpha1.Diagnosis {
	b.Helper()
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{GenerateName: "d-", Namespace: b.system}, Spec: v1alpha1.DiagnosisSpec{OperationSet: set, NodeName: node}}
	if change != nil {
		change(d)
	}
	b.create(d)
	b.problem(d, v1alpha1.ProblemLasts)
	return d
}

// problem writes whether the problem of a Diagnosis lasts, as its node's agent would.
func (b *bench) problem(d *v1alpha1.Diagnosis, state v1alpha1.ProblemState) {
	b.Helper()
	b.status(d, func(s *v1alpha1.DiagnosisStatus) {
		s.Problem = &v1alpha1.Problem{State: state, Since: b.agents.now()}
	})
}

func (b *bench) status(d *v1alpha1.Diagnosis, change func(*v1alpha1.DiagnosisStatus)) {
	b.Helper()
	b.retry("write a status", func() error {
		now := &v1alpha1.Diagnosis{}
		if err := b.client.Get(b.Context(), client.ObjectKeyFromObject(d), now); err != nil {
			return err
		}
		change(&now.Status)
		return b.client.Status().Update(b.Context(), now)
	})
}

func (b *bench) approve(d *v1alpha1.Diagnosis, digest v1alpha1.Digest) {
	b.Helper()
	b.patch(&v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}, `{"spec":{"approval":{"planDigest":"`+string(digest)+`"}}}`)
}

func (b *bench) get(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	b.Helper()
	out := &v1alpha1.Diagnosis{}
	if err := b.client.Get(b.Context(), client.ObjectKeyFromObject(d), out); err != nil {
		b.Fatal(err)
	}
	return out
}

func (b *bench) node(name string) *corev1.Node {
	b.Helper()
	n := &corev1.Node{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: name}, n); err != nil {
		b.Fatal(err)
	}
	return n
}

// decision returns the decision on a repair as "Verb Reason".
func (b *bench) decision(d *v1alpha1.Diagnosis, id int) string {
	b.Helper()
	rem := b.get(d).Status.Remediation(id)
	if rem == nil {
		return ""
	}
	return string(rem.Verb) + " " + rem.Reason
}

// condition returns a condition as "Status Reason".
func (b *bench) condition(d *v1alpha1.Diagnosis, kind string) string {
	b.Helper()
	for _, c := range b.get(d).Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func (b *bench) waitDecision(d *v1alpha1.Diagnosis, id int, want string) {
	b.Helper()
	b.waitIs("decision of "+d.Name, want, func() string { return b.decision(d, id) })
}

func (b *bench) waitCondition(d *v1alpha1.Diagnosis, kind, want string) {
	b.Helper()
	defer func() {
		if b.Failed() {
			text, err := json.Marshal(b.get(d).Status)
			b.Logf("status: %s %v", text, err)
		}
	}()
	b.waitIs(kind+" of "+d.Name, want, func() string { return b.condition(d, kind) })
}

func (b *bench) waitPhase(d *v1alpha1.Diagnosis, want v1alpha1.Phase) {
	b.Helper()
	b.waitIs("phase of "+d.Name, string(want), func() string { return string(b.get(d).Status.Phase) })
}

func (b *bench) waitIs(what, want string, is func() string) {
	b.Helper()
	testenv.UntilShown(b, fmt.Sprintf("%s: %q", what, want), deadline, func() (bool, string) {
		have := is()
		return have == want, strconv.Quote(have)
	})
}

func (b *bench) waitFor(what string, ok func() bool) {
	b.Helper()
	testenv.Until(b, what, deadline, ok)
}

// holds fails if a condition does not hold for a while.
func (b *bench) holds(what string, lasts time.Duration, ok func() bool) {
	b.Helper()
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if !ok() {
			b.Fatalf("it does not hold that %s", what)
		}
	}
}

// events returns the reasons of an object's Events, each with its count.
func (b *bench) events(uid types.UID) map[string]int {
	b.Helper()
	var list corev1.EventList
	if err := b.client.List(b.Context(), &list); err != nil {
		b.Fatal(err)
	}
	out := map[string]int{}
	for _, e := range list.Items {
		if e.InvolvedObject.UID == uid {
			out[e.Reason] += max(1, int(e.Count))
			if e.Series != nil {
				out[e.Reason] += int(e.Series.Count)
			}
		}
	}
	return out
}

// waitEvents waits until the Events of an object are exactly these, each reported once.
func (b *bench) waitEvents(uid types.UID, reasons ...string) {
	b.Helper()
	want := map[string]int{}
	for _, r := range reasons {
		want[r]++
	}
	b.waitIs("events", fmt.Sprint(want), func() string { return fmt.Sprint(b.events(uid)) })
}

// running is a running controller.
type running struct {
	*link
	registry *prometheus.Registry
	cancel   context.CancelFunc
	ended    chan error
}

// link is a process's connection to the API server. After its last write the process is dead.
type link struct {
	mu    sync.Mutex
	left  int  // writes that are still accepted; negative: all
	after bool // the last one succeeds, and its response is lost
	dead  chan struct{}
	wrote []string
	read  []string // single Diagnoses
}

var errDead = errors.New("the process is dead")

func (l *link) config(c *rest.Config) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			write := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events")
			l.mu.Lock()
			select {
			case <-l.dead:
				l.mu.Unlock()
				return nil, errDead
			default:
			}
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/diagnoses/") {
				l.read = append(l.read, r.URL.Path)
			}
			last := write && l.left == 0
			if write {
				l.left--
				l.wrote = append(l.wrote, r.Method+" "+r.URL.Path)
			}
			if last {
				close(l.dead)
			}
			after := l.after
			l.mu.Unlock()
			if last && !after {
				return nil, errDead
			}
			answer, err := next.RoundTrip(r)
			if last {
				if err == nil {
					answer.Body.Close()
				}
				return nil, errDead
			}
			return answer, err
		})
	})
	return c
}

func (l *link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.dead:
	default:
		close(l.dead)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// control runs a controller.
func (b *bench) control(change func(*Config)) *running {
	b.Helper()
	return b.controlLink(&link{left: -1, dead: make(chan struct{})}, change)
}

func (b *bench) controlLink(l *link, change func(*Config)) *running {
	b.Helper()
	r := &running{link: l, registry: prometheus.NewPedanticRegistry(), ended: make(chan error, 1)}
	c := Config{
		Namespace: b.system, Every: time.Second, Look: 50 * time.Millisecond, Metrics: r.registry,
		Log: slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	to, known := l.config(b.server.Config(b.T, b.user)), scheme(b.T)
	go func() { r.ended <- run(ctx, to, c, known); close(r.ended) }()
	b.Cleanup(func() { r.stop() })
	return r
}

// run runs a controller in a manager as the command does: it is added once the kinds are served,
// and the cache options are shared by all parts.
func run(ctx context.Context, to *rest.Config, c Config, known *runtime.Scheme) error {
	speak := liveness.Config{Namespace: c.Namespace, Annotations: policy.SetKeys}
	kinds, err := speak.ByObject()
	if err != nil {
		return err
	}
	maps.Copy(kinds, controller.ByObject())
	m, err := leader.New(to, leader.Config{Namespace: c.Namespace, ByObject: kinds, Scheme: known, Kinds: controller.Mapper(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	remove, err := leader.WhenServed(m, controller.Served(),
		func() (func(), error) { return func() {}, controller.IndexParents(m.GetFieldIndexer()) },
		func() (func(), error) { return Add(m, c) })
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

// count returns the sum of a metric over the given label values, name by name.
func (r *running) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return kubetest.Sum(t, r.registry, name, labels...)
}
