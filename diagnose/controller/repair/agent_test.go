package repair

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/worker/kube"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// agent runs the real worker of a node's agent against the API server.
func (b *bench) agent(node string) {
	b.Helper()
	b.agents.stop()
	root := hostfs.New("/")
	all := catalog.All(operation.Host{FS: root})
	log := slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	dir := b.TempDir()
	store, err := kube.New(kube.Config{
		REST: b.server.Admin(), Node: node, Dir: dir, Log: log,
		Builtin: func(name string) bool { _, ok := operation.Lookup(all, name); return ok },
	})
	if err != nil {
		b.Fatal(err)
	}
	w, err := worker.New(worker.Config{Node: node, Namespace: b.system, Dir: dir, Store: store, Builtins: all, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { cancel(); ended.Wait() })
}

// A Diagnosis that waits for approval costs the API server nothing: neither the agent, which asks
// again each minute, nor the controller writes it while nothing changes.
func TestAWaitingDiagnosisIsNotWritten(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.nodes(1)[0]
	set := b.set("kernel-facts", "cordon")
	b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	b.agent(node)
	b.control(nil)
	d := b.diagnose(node, set, nil)
	b.waitDecision(d, 2, "Wait AwaitingApproval")
	b.waitIs("what the agent waits for", "node 2: AwaitingApproval", func() string {
		return meta.FindStatusCondition(b.get(d).Status.Conditions, v1alpha1.ConditionComplete).Message
	})
	var list v1alpha1.DiagnosisList
	if err := b.client.List(b.Context(), &list, client.InNamespace(b.system)); err != nil {
		t.Fatal(err)
	}
	changes, err := b.client.Watch(b.Context(), &v1alpha1.DiagnosisList{}, &client.ListOptions{Namespace: b.system, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	var last []string
	for lasts := time.After(75 * time.Second); ; {
		select {
		case e := <-changes.ResultChan():
			d := e.Object.(*v1alpha1.Diagnosis)
			last = append(last, fmt.Sprintf("%s %s %+v", d.ResourceVersion, e.Type, *d.Status.Checkpoint))
			continue
		case <-lasts:
		}
		break
	}
	if len(last) > 0 {
		t.Errorf("%d writes in 75 s:\n%s", len(last), strings.Join(last, "\n"))
	}
	b.approve(d, b.get(d).Status.Plan.Digest)
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
}

// The real worker and the controller compute the same plans, and finish a Diagnosis in each mode.
func TestWithTheAgentsWorker(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.nodes(1)[0]
	label := b.operation("label-node", map[string]string{"key": "example.org/state", "value": "sick"})
	set := b.set("kernel-facts", label, "cordon", "uncordon")
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeObserve })
	b.agent(node)
	b.control(nil)
	observed := b.diagnose(node, set, nil)
	b.waitPhase(observed, v1alpha1.PhaseSucceeded)
	for id := 2; id <= 4; id++ {
		if res := b.get(observed).Status.Result(id); res == nil || res.State != v1alpha1.ResultWouldRun {
			t.Errorf("node %d: %+v", id, res)
		}
	}
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	d := b.diagnose(node, set, nil)
	for id := 2; id <= 4; id++ {
		b.waitDecision(d, id, "Wait AwaitingApproval")
		b.approve(d, b.get(d).Status.Plan.Digest)
	}
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeEnforce })
	b.problem(d, v1alpha1.ProblemGone)
	b.waitIs("slots", "", func() string { return b.slots(p) })
	d = b.diagnose(node, set, nil)
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	got := b.get(d)
	for id := 2; id <= 4; id++ {
		if res := got.Status.Result(id); res == nil || res.State != v1alpha1.ResultSucceeded {
			t.Errorf("node %d: %+v", id, res)
		}
	}
	if n := b.node(node); n.Spec.Unschedulable || n.Labels["example.org/state"] != "sick" {
		t.Errorf("%+v", n)
	}
}
