package repair

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// watcher watches each version of the bench's nodes and of a policy, and records the maximum number
// of nodes that Kernosis had cordoned, and that had a slot, at once. Its watches continue until the
// test ends, so tests read it only under its lock.
type watcher struct {
	mu     sync.Mutex
	budget *apitest.BudgetWatch
}

func (b *bench) watch(name string) *watcher {
	b.Helper()
	w := &watcher{budget: apitest.NewBudgetWatch()}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	b.Cleanup(func() { cancel(); ended.Wait() })
	nodes, err := b.client.Watch(ctx, &corev1.NodeList{}, client.MatchingLabels{"bench": b.system})
	if err != nil {
		b.Fatal(err)
	}
	policies, err := b.client.Watch(ctx, &v1alpha1.RemediationPolicyList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		b.Fatal(err)
	}
	ended.Go(func() {
		for e := range nodes.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				w.seeNode(n)
			}
		}
	})
	ended.Go(func() {
		for e := range policies.ResultChan() {
			if p, ok := e.Object.(*v1alpha1.RemediationPolicy); ok {
				w.seePolicy(p)
			}
		}
	})
	b.Cleanup(func() { nodes.Stop(); policies.Stop() })
	return w
}

func (w *watcher) seeNode(n *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget.Node(n)
}

func (w *watcher) seePolicy(p *v1alpha1.RemediationPolicy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budget.Policy(p)
}

// had returns how many nodes were cordoned so far.
func (w *watcher) had() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.budget.Ever)
}

// most returns the maximum numbers of nodes that were cordoned at once, that had a slot, and that
// had either.
func (w *watcher) most() (cordoned, slots, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.budget.Most, w.budget.MostSlots, w.budget.MostAll
}

// Fifty nodes fail at once. Two controllers work on them without an election, and one is killed.
// Each node is cordoned, repaired and uncordoned, never more at once than the budget.
func TestBudgetOfFiftyNodes(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const nodes, budget = 50, 5
	b := newBench(t)
	names := b.nodes(nodes)
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		most := int32(budget)
		p.Budget.MaxNodes = &most
	})
	w := b.watch(p)
	set := b.set("cordon", "restart-unit", "uncordon")
	fast := func(c *Config) { c.Every = 200 * time.Millisecond }
	first := b.control(fast)
	b.control(fast)
	var all []*v1alpha1.Diagnosis
	for _, n := range names {
		all = append(all, b.diagnose(n, set, func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = v1alpha1.Parameters{"unit": "kubelet"} }))
	}
	began := time.Now()
	gone := sets.New[string]()
	killed := false
	for len(gone) < nodes {
		if time.Since(began) > testenv.Within(6*deadline) {
			t.Fatalf("%d of %d repaired; slots %q", len(gone), nodes, b.slots(p))
		}
		if !killed && len(gone) >= nodes/3 {
			first.kill()
			killed = true
		}
		var list v1alpha1.DiagnosisList
		if err := b.client.List(t.Context(), &list, client.InNamespace(b.system)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			d := &list.Items[i]
			if d.Status.Phase.Ended() && !gone.Has(d.Name) {
				if d.Status.Phase != v1alpha1.PhaseSucceeded {
					t.Fatalf("%s: %+v", d.Name, d.Status)
				}
				b.problem(d, v1alpha1.ProblemGone)
				gone.Insert(d.Name)
			}
		}
		time.Sleep(200 * time.Millisecond) // between reads of the API
	}
	t.Logf("%d nodes in %s", nodes, time.Since(began).Round(time.Millisecond))
	for _, d := range all {
		b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
	}
	b.waitIs("slots", "", func() string { return b.slots(p) })
	if cordoned, slots, either := w.most(); w.had() != nodes || cordoned > budget || slots > budget || either > budget {
		t.Errorf("%d were cordoned; at once %d cordoned, %d slots, %d of either: the budget is %d", w.had(), cordoned, slots, either, budget)
	}
	for _, n := range names {
		if n := b.node(n); n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != "" {
			t.Errorf("%s is left cordoned", n.Name)
		}
	}
	if made := b.made(); len(made) != nodes {
		t.Errorf("%d repairs of nodes themselves: %v", len(made), made)
	}
}

// Nodes that stay cordoned use up the budget, even after their slots are released.
func TestCordonedNodesUseUpTheBudget(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	names := b.nodes(5)
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		two := int32(2)
		p.Budget.MaxNodes, p.VerifyWithin = &two, metav1.Duration{Duration: time.Second}
	})
	w := b.watch(p)
	b.control(nil)
	set := b.set("cordon")
	var all []*v1alpha1.Diagnosis
	for _, n := range names {
		all = append(all, b.diagnose(n, set, nil))
	}
	helpless := func() (n int) {
		for _, d := range all {
			if b.condition(d, v1alpha1.ConditionVerified) == "False NotHelped" {
				n++
			}
		}
		return n
	}
	b.waitFor("two have not helped", func() bool { return helpless() == 2 })
	b.waitIs("slots", "", func() string { return b.slots(p) })
	b.holds("the others wait", 3*time.Second, func() bool { return w.had() == 2 })
	for _, d := range all {
		if rem := b.get(d).Status.Remediation(1); rem.Verb == v1alpha1.RemediationWait && (rem.Reason != v1alpha1.ReasonBudgetExhausted || !strings.Contains(rem.Message, "status.budget")) {
			t.Errorf("%+v", rem)
		}
	}
	b.waitFor("the policy has who uses its budget", func() bool {
		u := b.policyOf(p).Status.Budget
		return u != nil && u.Used == 2 && u.Limit == 2 && len(u.By) == 2 && strings.HasSuffix(u.By[0], ": cordoned")
	})
	// A person uncordons one: there is room for another.
	for _, n := range names {
		if b.node(n).Spec.Unschedulable {
			b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, `{"spec":{"unschedulable":null}}`)
			b.waitFor("the mark is taken away", func() bool { return b.node(n).Annotations[policy.AnnotationActs] == "" })
			break
		}
	}
	b.waitFor("another is cordoned", func() bool { return w.had() == 3 })
	if _, _, either := w.most(); either > 2 {
		t.Errorf("%d at once", either)
	}
}

// A controller dies at each of its writes, before the write or with its response lost. The next one
// finishes the repair, and nothing is made twice.
func TestControllerDiesAtEachWrite(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	set := b.set("uncordon", "cordon")
	p := b.policy(nil)
	for _, after := range []bool{false, true} {
		died := true
		for n := 0; died; n++ {
			name := fmt.Sprintf("write %d, taken %v", n, after)
			node := b.nodes(1)[0]
			d := b.diagnose(node, set, nil)
			first := b.controlLink(&link{left: n, after: after, dead: make(chan struct{})}, nil)
			b.waitFor(name+": it dies, or all is done", func() bool {
				select {
				case <-first.dead:
					return true
				default:
					return b.get(d).Status.Phase.Ended() && b.condition(d, v1alpha1.ConditionVerified) == "Unknown Verifying"
				}
			})
			select {
			case <-first.dead:
			default:
				died = false // it has no more writes
			}
			first.cancel()
			<-first.ended
			second := b.control(nil)
			b.waitPhase(d, v1alpha1.PhaseSucceeded)
			got := b.node(node)
			if !got.Spec.Unschedulable || strings.Count(got.Annotations[policy.AnnotationActs], string(d.UID)) != 1 {
				t.Errorf("%s: %+v", name, got.Annotations)
			}
			for id, want := range map[int]string{1: "rever", 2: "is cordoned"} {
				if rem := b.get(d).Status.Remediation(id); rem == nil || rem.Outcome == nil || rem.Outcome.State != v1alpha1.ResultSucceeded || !strings.Contains(rem.Outcome.Message, want) {
					t.Errorf("%s: node %d: %+v", name, id, rem)
				}
			}
			b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, `{"spec":{"unschedulable":null}}`)
			b.problem(d, v1alpha1.ProblemGone)
			b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
			b.waitIs(name+": slots", "", func() string { return b.slots(p) })
			if err := second.stop(); err != nil {
				t.Log(err) // it is slow on a busy machine
			}
			if n > 40 {
				t.Fatal("it never ends")
			}
		}
	}
}
