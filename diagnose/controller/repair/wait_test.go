package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// ready sets a node's Ready condition, as kubelet does.
func (b *bench) ready(node string, is corev1.ConditionStatus) {
	b.Helper()
	now := metav1.Now().UTC().Format(time.RFC3339)
	body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","lastTransitionTime":%q,"lastHeartbeatTime":%q}]}}`, is, now, now)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := b.client.Status().Patch(b.Context(), n, client.RawPatch("application/strategic-merge-patch+json", []byte(body))); err != nil {
		b.Fatal(err)
	}
}

// versions returns the resourceVersions of the bench's Diagnoses.
func (b *bench) versions() map[string]string {
	b.Helper()
	var list v1alpha1.DiagnosisList
	if err := b.client.List(b.Context(), &list, client.InNamespace(b.system)); err != nil {
		b.Fatal(err)
	}
	out := map[string]string{}
	for _, d := range list.Items {
		out[d.Name] = d.ResourceVersion
	}
	return out
}

// Fifty repairs wait while nodes come and go, even past the number at which all repairs are paused.
// No Diagnosis is written because of that; the numbers are in the metrics at once, and periodically
// in the policy's status. When the budget has room, that many repairs get their turn.
func TestNodesThatComeAndGoRewriteNoDiagnosis(t *testing.T) {
	testenv.OnlyInTestAll(t)
	const waiting = 50
	b := newBench(t)
	names := b.nodes(waiting + 4)
	cordoned, flapping := names[:2], names[2:4]
	for _, n := range cordoned {
		b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, `{"spec":{"unschedulable":true}}`)
	}
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		two := int32(2)
		p.Budget.MaxNodes, p.PauseWhenUnhealthyPercent = &two, 3 // of 54 nodes: two
	})
	r := b.control(nil)
	set := b.set("cordon")
	var all []*v1alpha1.Diagnosis
	for _, n := range names[4:] {
		all = append(all, b.diagnose(n, set, nil))
	}
	t.Cleanup(func() { // the controllers of other tests would decide on them too
		_ = b.client.DeleteAllOf(context.WithoutCancel(t.Context()), &v1alpha1.Diagnosis{}, client.InNamespace(b.system))
	})
	for _, d := range all {
		b.waitDecision(d, 1, "Wait BudgetExhausted")
	}
	message := b.get(all[0]).Status.Remediation(1).Message
	if !strings.Contains(message, "status.budget") || !strings.Contains(message, p) {
		t.Errorf("%q does not lead to the numbers", message)
	}
	written := b.count(p)
	began := time.Now()
	before := b.versions()

	for i := range 20 {
		// The first goes, then the second; the second comes back, then the first.
		node, is := flapping[[]int{0, 1, 1, 0}[i%4]], corev1.ConditionFalse
		if i%4 >= 2 {
			is = corev1.ConditionTrue
		}
		b.ready(node, is)
		notReady := []float64{1, 2, 1, 0}[i%4]
		b.waitIs("metrics", fmt.Sprint(notReady, 2+notReady, notReady == 2), func() string {
			return fmt.Sprint(r.count(t, "kernosis_remediation_nodes_not_ready", "policy", p), r.count(t, "kernosis_remediation_budget_used", "policy", p),
				r.count(t, "kernosis_remediation_paused", "policy", p, "reason", v1alpha1.ReasonTooManyUnhealthy) == 1)
		})
	}
	b.ready(flapping[0], corev1.ConditionFalse)
	use := func() string {
		p := b.policyOf(p)
		if p.Status.Budget == nil {
			return ""
		}
		u := p.Status.Budget
		return fmt.Sprintf("%d nodes, %d not ready, %d of %d: %s", u.Nodes, u.NotReady, u.Used, u.Limit, strings.Join(u.By, ", "))
	}
	by := []string{cordoned[0] + ": cordoned", cordoned[1] + ": cordoned", flapping[0] + ": not ready"}
	slices.Sort(by)
	b.waitIs("status.budget", fmt.Sprintf("%d nodes, 1 not ready, 3 of 2: %s", waiting+4, strings.Join(by, ", ")), use)
	b.holds("no Diagnosis is written", 2*time.Second, func() bool {
		for name, version := range b.versions() {
			if before[name] != version {
				t.Errorf("%s was written: %+v", name, b.get(&v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: b.system, Name: name}}).Status.Remediation(1))
			}
		}
		return !t.Failed()
	})
	n, most := written(), int(time.Since(began)/reportEvery)+2
	t.Logf("the policy was written %d times in %s", n, time.Since(began).Round(time.Second))
	if n > most {
		t.Errorf("the policy was written %d times in %s, want %d at most", n, time.Since(began), most)
	}

	// Room for one.
	b.ready(flapping[0], corev1.ConditionTrue)
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cordoned[0]}}, `{"spec":{"unschedulable":null}}`)
	repaired := func() (out []string) {
		for _, n := range names[4:] {
			if b.node(n).Spec.Unschedulable {
				out = append(out, n)
			}
		}
		return out
	}
	b.waitFor("one gets its turn", func() bool { return len(repaired()) == 1 })
	// And for another.
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cordoned[1]}}, `{"spec":{"unschedulable":null}}`)
	b.waitFor("another gets its turn", func() bool { return len(repaired()) == 2 })
	b.holds("the others wait", 2*time.Second, func() bool { return len(repaired()) == 2 })
	changed := 0
	for name, version := range b.versions() {
		if before[name] != version {
			changed++
		}
	}
	if changed != 2 {
		t.Errorf("%d Diagnoses were written for two repairs", changed)
	}
}

func (b *bench) policyOf(name string) *v1alpha1.RemediationPolicy {
	b.Helper()
	p := &v1alpha1.RemediationPolicy{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: name}, p); err != nil {
		b.Fatal(err)
	}
	return p
}

// count counts a policy's versions from now on.
func (b *bench) count(name string) func() int {
	b.Helper()
	w, err := b.client.Watch(context.WithoutCancel(b.Context()), &v1alpha1.RemediationPolicyList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		b.Fatal(err)
	}
	n := -1 // the existing version
	var mu sync.Mutex
	var ended sync.WaitGroup
	ended.Go(func() {
		for range w.ResultChan() {
			mu.Lock()
			n++
			mu.Unlock()
		}
	})
	b.Cleanup(func() { w.Stop(); ended.Wait() })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}
