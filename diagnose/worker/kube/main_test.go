package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// deadline is for what takes milliseconds on an idle machine.
const deadline = time.Minute

// waitFor waits until a condition holds.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testenv.Until(t, what, deadline, ok)
}

// rig is a running Store, and what it reported.
type rig struct {
	*Store
	t      testing.TB
	logs   *logs
	cancel context.CancelFunc
	ended  chan struct{}

	onDiagnosis func(*v1alpha1.Diagnosis) // nil: nothing; called with the lock held

	mu       sync.Mutex
	changes  int
	reported []string // "NAME VERSION" and "gone NAME UID", in order
	newest   map[string]*v1alpha1.Diagnosis
}

// newStore returns a Store with its own node and folder, which does not run.
func newStore(t testing.TB, to *rest.Config, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, logs: &logs{}, newest: map[string]*v1alpha1.Diagnosis{}}
	c := Config{REST: to, Node: "n1", Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(r.logs, nil))}
	if change != nil {
		change(&c)
	}
	var err error
	if r.Store, err = New(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// away reports whether the API server did not answer the last request.
func (s *Store) away() bool {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return !s.account.since.IsZero()
}

// start returns a running Store.
func start(t testing.TB, to *rest.Config, change func(*Config)) *rig {
	t.Helper()
	r := newStore(t, to, change)
	r.run()
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	go func() {
		defer close(r.ended)
		if err := r.Run(ctx, r); err != nil {
			r.t.Error(err)
		}
	}()
	r.t.Cleanup(r.stop)
}

// stop fails if stopping takes too long.
func (r *rig) stop() {
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(testenv.Within(10 * time.Second)):
		r.t.Error("the store does not end")
	}
}

func (r *rig) ObjectsChanged() { r.mu.Lock(); defer r.mu.Unlock(); r.changes++ }

func (r *rig) Diagnosis(d *v1alpha1.Diagnosis) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported = append(r.reported, d.Name+" "+string(d.UID))
	r.newest[d.Name] = d
	if r.onDiagnosis != nil {
		r.onDiagnosis(d)
	}
}

func (r *rig) Gone(k worker.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported = append(r.reported, "gone "+k.Name+" "+string(k.UID))
	delete(r.newest, k.Name)
}

func (r *rig) changed() int { r.mu.Lock(); defer r.mu.Unlock(); return r.changes }

// last returns the last reported version of a Diagnosis; nil: none was reported, or it is gone.
func (r *rig) last(name string) *v1alpha1.Diagnosis {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest[name]
}

// of returns what was reported about a Diagnosis, without repetitions.
func (r *rig) of(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, line := range r.reported {
		if strings.Contains(line, name+" ") {
			list = append(list, line)
		}
	}
	return slices.Compact(list)
}

func (r *rig) synced() {
	r.t.Helper()
	waitFor(r.t, "all is known", func() bool {
		for _, c := range []chan struct{}{r.operations.synced, r.sets.synced, r.triggers.synced, r.diagnoses.synced} {
			select {
			case <-c:
			default:
				return false
			}
		}
		return r.changed() > 0
	})
}

func (r *rig) set(name string) *v1alpha1.OperationSet {
	for _, s := range r.Objects().OperationSets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (r *rig) count(verb, resource string, o conditions.Outcome) uint64 {
	return r.Stats().Requests[Request{verb, resource, o}]
}

// logs has the log output.
type logs struct{ testenv.LogBuffer }

// count returns how many lines contain all of the given texts.
func (l *logs) count(texts ...string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
			n++
		}
	}
	return n
}

// unique returns a name that only this test uses.
func unique(t testing.TB, what string) string {
	name := strings.ToLower(strings.Map(func(r rune) rune {
		if r == '/' || r == '_' || r == '#' {
			return '-'
		}
		return r
	}, t.Name()))
	return fmt.Sprintf("%s-%s-%d", what, name[:min(len(name), 30)], time.Now().UnixNano()%1e6)
}

func operationOf(name string) *v1alpha1.Operation {
	o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.Processor.Builtin = &v1alpha1.Builtin{Name: "kernel-facts"}
	return o
}

func triggerOf(name, set string) *v1alpha1.Trigger {
	tr := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: name}}
	tr.Spec.OperationSet = set
	tr.Spec.SourceTemplate.ProblemTemplate = &v1alpha1.ProblemTemplate{Rules: []string{"oom-kill"}}
	return tr
}

func diagnosisOf(namespace, name, node string) *v1alpha1.Diagnosis {
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.OperationSet, d.Spec.NodeName = "any", node
	d.Spec.Parameters = v1alpha1.Parameters{"device": "loop0"}
	return d
}

func create[T client.Object](t testing.TB, c client.Client, o T) T {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func remove(t testing.TB, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func keyOf(d *v1alpha1.Diagnosis) worker.Key {
	return worker.Key{NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, UID: d.UID}
}

func is(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
	}
}
