package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/worker"
)

const system = "kernosis-system"

// api simulates the API server for the worker.
type api struct {
	mu      sync.Mutex
	objects *worker.Objects
	all     map[types.NamespacedName]*v1alpha1.Diagnosis
	h       worker.Handler
	away    bool
	late    time.Duration // how long the watch delivers nothing
	refuse  error         // of Create
	uids    int
	version int
	creates int
	writes  []time.Time
	// before is called with the result of a write, before the response is returned.
	before func(*v1alpha1.Diagnosis)
}

func (a *api) Run(ctx context.Context, h worker.Handler) error {
	if a.late > 0 {
		select {
		case <-time.After(a.late):
		case <-ctx.Done():
			return nil
		}
	}
	a.mu.Lock()
	a.h = h
	known := slices.Collect(maps.Values(a.all))
	a.mu.Unlock()
	h.ObjectsChanged()
	for _, d := range known {
		h.Diagnosis(d.DeepCopy())
	}
	<-ctx.Done()
	a.mu.Lock()
	a.h = nil
	a.mu.Unlock()
	return nil
}

func (a *api) Objects() *worker.Objects {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects
}

func (a *api) Create(_ context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.away:
		return nil, worker.ErrAway
	case a.refuse != nil:
		return nil, a.refuse
	}
	name := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	if a.all[name] == nil {
		a.creates++
		a.put(d.DeepCopy())
	}
	return a.all[name].DeepCopy(), nil
}

// put adds a Diagnosis. The lock is held.
func (a *api) put(d *v1alpha1.Diagnosis) {
	a.uids++
	d.UID, d.Generation = types.UID(fmt.Sprint("uid-", a.uids)), 1
	a.store(d)
}

// store stores the next version of a Diagnosis. The lock is held.
func (a *api) store(d *v1alpha1.Diagnosis) {
	a.version++
	d.ResourceVersion = strconv.Itoa(a.version)
	if a.all == nil {
		a.all = map[types.NamespacedName]*v1alpha1.Diagnosis{}
	}
	a.all[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}] = d
}

func (a *api) Write(_ context.Context, k worker.Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error) {
	d, err := a.write(k, change)
	if err == nil && a.before != nil {
		a.before(d)
	}
	return d, err
}

func (a *api) write(k worker.Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return nil, worker.ErrAway
	}
	d := a.all[k.NamespacedName]
	if d == nil || d.UID != k.UID {
		return nil, worker.ErrGone
	}
	d = d.DeepCopy()
	change(&d.Status)
	d = asStored(d)
	a.store(d)
	a.writes = append(a.writes, time.Now())
	return d.DeepCopy(), nil
}

// asStored returns a Diagnosis as an API server stores it: times in whole microseconds.
func asStored(d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	out := &v1alpha1.Diagnosis{}
	if err := json.Unmarshal(raw, out); err != nil {
		panic(err)
	}
	return out
}

// written returns how often a status was written.
func (a *api) written() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.writes)
}

// known returns how many Diagnoses exist, and how many were created.
func (a *api) known() (n, made int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all), a.creates
}

// person changes a Diagnosis as somebody else does, and notifies the worker.
func (a *api) person(name types.NamespacedName, change func(*v1alpha1.Diagnosis)) {
	a.mu.Lock()
	d := a.all[name].DeepCopy()
	change(d)
	a.store(d)
	h := a.h
	a.mu.Unlock()
	if h != nil {
		h.Diagnosis(d.DeepCopy())
	}
}

// add creates a Diagnosis as a person does.
func (a *api) add(d *v1alpha1.Diagnosis) {
	a.mu.Lock()
	a.put(d)
	h := a.h
	a.mu.Unlock()
	if h != nil {
		h.Diagnosis(d.DeepCopy())
	}
}

func (a *api) remove(name types.NamespacedName) {
	a.mu.Lock()
	d, h := a.all[name], a.h
	delete(a.all, name)
	a.mu.Unlock()
	if h != nil {
		h.Gone(worker.Key{NamespacedName: name, UID: d.UID})
	}
}

func (a *api) setAway(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// only returns the only Diagnosis.
func (a *api) only(t *testing.T) *v1alpha1.Diagnosis {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) != 1 {
		t.Fatalf("%d Diagnoses", len(a.all))
	}
	for _, d := range a.all {
		return d.DeepCopy()
	}
	return nil
}

func (a *api) get(name string) *v1alpha1.Diagnosis { return a.in(system, name) }

func (a *api) in(namespace, name string) *v1alpha1.Diagnosis {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// ops are a test's operations: what each does, and how often it ran.
type ops struct {
	mu  sync.Mutex
	ran map[string]int
	do  map[string]func(context.Context, *operation.Call) (operation.Output, error)
}

func (o *ops) count(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ran[name]
}

// builtins returns look (Collect), is-a and is-b (Check; is-a is refuted), mend, a repair of the
// node, and cordon, a repair of the controller.
func (o *ops) builtins() []operation.Builtin {
	var all []operation.Builtin
	for name, effect := range map[string]operation.Effect{
		"cordon": operation.Remediate, "is-a": operation.Check, "is-b": operation.Check, "look": operation.Collect, "mend": operation.Remediate,
	} {
		b := operation.Builtin{
			Name: name, Effect: effect, ByController: name == "cordon", TenantSafe: name == "look",
			Parameters: []operation.Parameter{{Name: "node"}, {Name: "podUID"}, {Name: "podName"}, {Name: "pid"}},
			Results:    []operation.Result{{Name: "found"}, {Name: "node"}},
		}
		b.Run = func(ctx context.Context, c *operation.Call) (operation.Output, error) {
			o.mu.Lock()
			if o.ran == nil {
				o.ran = map[string]int{}
			}
			o.ran[name]++
			do := o.do[name]
			o.mu.Unlock()
			switch {
			case do != nil:
				return do(ctx, c)
			case name == "is-a":
				return operation.Output{}, &operation.Refuted{Reason: "NotA", Message: "it is not a"}
			case name == "is-b":
				return operation.Output{Verdict: &operation.Verdict{Reason: "IsB", Message: "it is b"}}, nil
			}
			return operation.Output{Results: map[string]string{"found": "it", "node": c.Parameters["node"]}}, nil
		}
		if b.ByController {
			b.Run = nil
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b operation.Builtin) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// set returns an OperationSet with the given nodes after the start node.
func set(name string, nodes ...v1alpha1.Node) *v1alpha1.OperationSet {
	s := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.AdjacencyList = append([]v1alpha1.Node{{ID: 0, To: []int32{1}}}, nodes...)
	return s
}

func objects(sets ...*v1alpha1.OperationSet) *worker.Objects {
	return &worker.Objects{OperationSets: sets, Triggers: []*v1alpha1.Trigger{{
		ObjectMeta: metav1.ObjectMeta{Name: "hung"},
		Spec: v1alpha1.TriggerSpec{
			OperationSet:   sets[0].Name,
			SourceTemplate: v1alpha1.SourceTemplate{ProblemTemplate: &v1alpha1.ProblemTemplate{Rules: []string{"task-hung"}}},
		},
	}}}
}

// looks returns a set that only looks; mends returns one that ends with a repair.
func looks() *v1alpha1.OperationSet {
	return set("looks",
		v1alpha1.Node{ID: 1, Operation: "look", To: []int32{2, 3}},
		v1alpha1.Node{ID: 2, Operation: "is-a"},
		v1alpha1.Node{ID: 3, Operation: "is-b"})
}

func mends(repair string) *v1alpha1.OperationSet {
	return set("mends",
		v1alpha1.Node{ID: 1, Operation: "look", To: []int32{2}},
		v1alpha1.Node{ID: 2, Operation: "is-b", To: []int32{3}},
		v1alpha1.Node{ID: 3, Operation: repair, Dependences: []int32{1}})
}

// rig is a worker with its environment.
type rig struct {
	t     *testing.T
	dir   string
	api   *api
	ops   *ops
	conf  worker.Config
	w     *worker.Worker
	stop  func()
	mu    sync.Mutex
	ended []*worker.Ended
}

func newRig(t *testing.T, known *worker.Objects) *rig {
	r := &rig{t: t, dir: t.TempDir(), api: &api{objects: known}, ops: &ops{}}
	r.conf = worker.Config{
		Node: "n7", Namespace: system, Dir: r.dir, Store: r.api, Builtins: r.ops.builtins(),
		Ended: func(e *worker.Ended) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended = append(r.ended, e)
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	return r
}

// make creates a worker that does not run yet.
func (r *rig) make(state []byte) {
	r.t.Helper()
	w, err := worker.New(r.conf)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.Restore(state, false); err != nil {
		r.t.Log(err)
	}
	r.w = w
}

// start runs it until stop, or the test's end.
func (r *rig) start() {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	done := make(chan struct{})
	w := r.w
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	var once sync.Once
	r.stop = func() { once.Do(func() { cancel(errors.New("the agent ends")); <-done }) }
}

func (r *rig) reported() []*worker.Ended {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// began returns when the problem of a test began.
func began() time.Time { return time.Now().Add(-2 * time.Second).Round(0) }

func hung(at time.Time, state problem.State) []problem.Transition {
	ev := &event.Event{Kind: event.HungTask, Time: at, Task: &event.Task{PID: 811, TGID: 811, Comm: "pg"}}
	return []problem.Transition{{Problem: &problem.Problem{
		Rule: "task-hung", Group: "811", Reason: "TaskHung", Message: "pg[811] hangs", Severity: problem.Warning, State: state,
		Subject: "pg[811]", FirstSeen: at, LastSeen: at, Since: at, Count: 1, Evidence: []*event.Event{ev},
	}}}
}

func person(name, operationSet string) *v1alpha1.Diagnosis {
	return &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name},
		Spec:       v1alpha1.DiagnosisSpec{OperationSet: operationSet, NodeName: "n7"},
	}
}

// summary returns a text like "Succeeded PathSucceeded IsB [1 3] 1 Succeeded, 2 Refuted, 3
// Succeeded".
func summary(d *v1alpha1.Diagnosis) string {
	if d == nil {
		return "none"
	}
	s := &d.Status
	out := string(s.Phase)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionComplete); c != nil && c.Status == metav1.ConditionTrue {
		out += " " + c.Reason
	}
	if s.Verdict != nil {
		out += " " + s.Verdict.Reason
	}
	out += fmt.Sprint(" ", s.SucceededPath, " ")
	var results []string
	for _, r := range s.Results {
		results = append(results, fmt.Sprint(r.ID, " ", r.State))
	}
	return out + strings.Join(results, ", ")
}

func want(t *testing.T, d *v1alpha1.Diagnosis, text string) {
	t.Helper()
	if got := summary(d); got != text {
		t.Errorf("%s\nwant %s", got, text)
	}
}

func jsonSize(t *testing.T, v any) int {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(raw)
}
