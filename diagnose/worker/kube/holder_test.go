package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// agent is the part of an agent that handles Diagnoses: the worker, its store and the Lease.
type agent struct {
	worker *worker.Worker
	runs   atomic.Int32  // operations that have begun
	goOn   chan struct{} // closed to let operations end
	cut    context.CancelFunc
	ended  sync.WaitGroup
}

// newAgent starts one with its own folder. Its Lease lasts 2 s, and it does not announce its end:
// cut works like a kill.
func newAgent(t *testing.T, server *kubetest.Server, node, namespace string) *agent {
	t.Helper()
	a := &agent{goOn: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	builtins := []operation.Builtin{{Name: "wait", Effect: operation.Collect, Run: func(ctx context.Context, _ *operation.Call) (operation.Output, error) {
		a.runs.Add(1)
		select {
		case <-a.goOn:
		case <-ctx.Done():
		}
		return operation.Output{}, ctx.Err()
	}}}
	dir := t.TempDir()
	store, err := New(Config{REST: server.Admin(), Node: node, Dir: dir, Builtin: func(string) bool { return true }, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	k, err := lease.New(lease.Config{
		Client: server.Client(), Namespace: namespace, Node: node, Interval: 200 * time.Millisecond, Duration: 2 * time.Second, StartJitter: -1,
		DrainTimeout: time.Nanosecond, Holder: func() string { return a.worker.Holder() }, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if a.worker, err = worker.New(worker.Config{Node: node, Namespace: namespace, Dir: dir, Store: store, Builtins: builtins, Gone: k.Gone, Log: log}); err != nil {
		t.Fatal(err)
	}
	ctx, cut := context.WithCancel(context.Background())
	a.cut = cut
	a.ended.Go(func() { _ = k.Run(ctx) })
	a.ended.Go(func() {
		if err := a.worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.kill)
	return a
}

func (a *agent) kill() { a.cut(); a.ended.Wait() }

// Of two agents of a node, the one that has a Diagnosis runs it while it is alive, even if it
// writes nothing meanwhile; then the other one does, whatever the first one's clock was.
func TestSecondAgentOfANode(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	server.CRDs(t)
	node, namespace, c := server.Node(t), server.Namespace(t), apitest.Client(t, server.Admin())
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "wait"}}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}, Spec: v1alpha1.DiagnosisSpec{OperationSet: set.Name, NodeName: node}}
	for _, o := range []client.Object{set, d} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	state := func() *v1alpha1.Diagnosis {
		out := &v1alpha1.Diagnosis{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := newAgent(t, server, node, namespace)
	waitFor(t, "the first one runs it", func() bool {
		s := state()
		return first.runs.Load() == 1 && s.Status.Checkpoint != nil && s.Status.Checkpoint.Running != nil
	})
	second := newAgent(t, server, node, namespace)
	waitFor(t, "the second one knows of it", func() bool { return second.worker.Stats().Taken == 1 && second.worker.Stats().Yielded > 0 })
	// The first one's clock was an hour ahead.
	waitFor(t, "a time in the future", func() bool {
		s := state()
		s.Status.Checkpoint.Time = metav1.NewMicroTime(time.Now().Add(time.Hour))
		return c.Status().Update(t.Context(), s) == nil
	})
	// Six times the Lease, and longer than until the second one checks again.
	was, tick := state(), time.NewTicker(200*time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(12 * time.Second); time.Now().Before(until); <-tick.C {
		if s := state(); s.ResourceVersion != was.ResourceVersion || first.runs.Load() != 1 || second.runs.Load() != 0 {
			t.Fatalf("while both live: %d and %d runs, from\n%+v to\n%+v", first.runs.Load(), second.runs.Load(), was.Status.Checkpoint, s.Status.Checkpoint)
		}
	}
	first.kill()
	killed := time.Now()
	waitFor(t, "the second one has it", func() bool { return state().Status.Checkpoint.Holder == second.worker.Holder() })
	t.Logf("taken over after %s", time.Since(killed))
	close(second.goOn)
	waitFor(t, "it ends", func() bool { return state().Status.Phase == v1alpha1.PhaseSucceeded })
	if second.runs.Load() != 1 {
		t.Error(fmt.Sprint(second.runs.Load(), " runs"))
	}
}
