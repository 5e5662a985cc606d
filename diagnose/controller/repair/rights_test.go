package repair

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

// Without the role for repairs, the controller's repairs are dry-run, and those of agents are made.
func TestWithoutTheRoleForRepairs(t *testing.T) {
	b := newBench(t)
	b.grantBase("kernosis-controller-base", func(*rbacv1.PolicyRule) {})
	nodes := b.nodes(3)
	four, hundred := int32(4), int32(100)
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		p.Budget = v1alpha1.Budget{MaxNodes: &four, MaxPercent: &hundred}
	})
	// A mark left by an earlier controller.
	stale := `{"metadata":{"annotations":{"` + policy.AnnotationActs + `":"[{\"diagnosis\":\"gone\"}]"}}}`
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodes[2]}}, stale)
	r := b.control(func(c *Config) { c.DryRun = true })
	cordon := b.diagnose(nodes[0], b.set("cordon"), nil)
	b.waitDecision(cordon, 1, "WouldRun RepairsDisabled")
	b.waitPhase(cordon, v1alpha1.PhaseSucceeded)
	b.waitEvents(cordon.UID, "WouldCordon")
	restart := b.diagnose(nodes[1], b.set("restart-unit"), nil)
	b.waitDecision(restart, 1, "Run Allowed")
	b.waitPhase(restart, v1alpha1.PhaseSucceeded)
	b.problem(restart, v1alpha1.ProblemGone)
	b.waitIs("slots", "", func() string { return b.slots(p) })
	if b.node(nodes[0]).Spec.Unschedulable {
		t.Error("the node was cordoned")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.wrote, func(w string) bool { return strings.Contains(w, "/nodes/") }); i >= 0 {
		t.Error("a Node was written without the right to:", r.wrote[i])
	}
}

// If the rights do not even allow taking a slot, the decision says so.
func TestWithoutTheRightToSlots(t *testing.T) {
	b := newBench(t)
	b.grantBase("kernosis-controller-slotless", func(r *rbacv1.PolicyRule) {
		if slices.Contains(r.Resources, "remediationpolicies/status") {
			r.Verbs = []string{"patch"}
		}
	})
	node := b.nodes(1)[0]
	b.policy(nil)
	b.control(nil)
	d := b.diagnose(node, b.set("restart-unit"), nil)
	b.waitDecision(d, 1, "Wait Refused")
	if m := b.get(d).Status.Remediation(1).Message; !strings.Contains(m, "forbidden") || !strings.Contains(m, "remediationpolicies") {
		t.Error(m)
	}
	b.waitEvents(d.UID, "RepairWaits")
	b.holds("it is not made", time.Second, func() bool { return b.decision(d, 1) == "Wait Refused" })
}
