package repair

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestObserve(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeObserve })
	r := b.control(nil)
	d := b.diagnose(node, b.set("kmsg-tail", "cordon"), nil)
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	if got := b.condition(d, v1alpha1.ConditionRemediationAllowed); got != "False ObserveOnly" {
		t.Error(got)
	}
	s := b.get(d).Status
	if s.Results[1].State != v1alpha1.ResultWouldRun || !strings.Contains(s.Results[1].Message, "Observe") || s.Plan == nil || s.Plan.Steps[0].Target != "node "+node {
		t.Errorf("%+v", s)
	}
	n := b.node(node)
	if n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != "" {
		t.Error("the node was changed")
	}
	b.waitEvents(d.UID, "WouldCordon")
	b.waitEvents(n.UID, "WouldCordon")
	kubetest.AwaitSum(t, r.registry, 1, "kernosis_remediation_decisions_total", "verb", "WouldRun", "reason", "ObserveOnly")
}

func TestNoPolicyAndForeignNamespace(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	b.control(nil)
	set := b.set("cordon")
	d := b.diagnose(node, set, nil)
	b.waitDecision(d, 1, "WouldRun NoPolicy")
	b.policy(nil)
	other := b.server.Namespace(t)
	foreign := b.diagnose(node, set, func(d *v1alpha1.Diagnosis) { d.Namespace = other })
	b.status(foreign, func(s *v1alpha1.DiagnosisStatus) {
		s.Results = []v1alpha1.Result{{ID: 1, Operation: "cordon", State: v1alpha1.ResultAwaitingApproval}}
	})
	b.waitDecision(foreign, 1, "Withheld NotAllowed")
	b.holds("nothing is done", time.Second, func() bool { return !b.node(node).Spec.Unschedulable })
}

func TestApprove(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	b.control(nil)
	d := b.diagnose(node, b.set("cordon"), nil)
	b.waitDecision(d, 1, "Wait AwaitingApproval")
	plan := b.get(d).Status.Plan
	b.approve(d, v1alpha1.Digest(strings.Repeat("0", 64)))
	b.waitFor("the message tells of the other digest", func() bool {
		return strings.Contains(b.get(d).Status.Remediation(1).Message, "another plan is approved")
	})
	if b.node(node).Spec.Unschedulable || b.slots(p) != "" {
		t.Error("another plan was approved")
	}
	b.approve(d, plan.Digest)
	b.waitFor("the node is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	b.waitEvents(d.UID, "RepairWaits", "Cordoned")
}

// The cache has no results. A plan that depends on some reads them once, however often the repair is
// looked at while it waits.
func TestApproveAPlanWithResults(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	label := b.operation("label-node", map[string]string{"key": randomLabel})
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{GenerateName: b.system + "-"}}
	set.Spec.AdjacencyList = []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "kernel-facts", To: []int32{2}}, {ID: 2, Operation: label, Dependences: []int32{1}}}
	b.create(set)
	d := b.diagnose(node, set.Name, nil)
	r := b.control(nil)
	now := b.agents.now()
	results := []v1alpha1.Result{
		{ID: 1, Operation: "kernel-facts", State: v1alpha1.ResultSucceeded, StartTime: &now, Values: map[string]v1alpha1.ResultValue{"value": "sick", "other": strings.Repeat("x", 500)}},
		{ID: 2, Operation: label, State: v1alpha1.ResultAwaitingApproval},
	}
	b.status(d, func(s *v1alpha1.DiagnosisStatus) { s.Phase, s.Results = v1alpha1.PhaseRunning, results })
	b.waitDecision(d, 2, "Wait AwaitingApproval")
	for i := range 10 { // each wakes the Diagnosis
		b.ready(node, []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue}[i%2])
	}
	b.holds("it is read once", time.Second, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.read) == 1
	})
	o := &v1alpha1.Operation{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Name: label}, o); err != nil {
		t.Fatal(err)
	}
	plan, err := policy.PlanOf(b.get(d), 2, label, &o.Spec, []int{1})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := plan.Digest()
	if err != nil || digest != b.get(d).Status.Plan.Digest {
		t.Errorf("plan %+v, want %s (%v)", b.get(d).Status.Plan, digest, err)
	}
	b.approve(d, digest)
	b.waitFor("the node has the label", func() bool { return b.node(node).Labels[randomLabel] == "sick" })
	if got := b.get(d).Status.Results; len(got) != 2 || len(got[0].Values) != 2 {
		t.Errorf("the results were overwritten: %+v", got)
	}
}

func TestEnforce(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.CooldownPerNode = &metav1.Duration{Duration: time.Hour} })
	r := b.control(nil)
	set := b.set("cordon")
	d := b.diagnose(node, set, nil)
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	n := b.node(node)
	if !n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != `[{"diagnosis":"`+string(d.UID)+`"}]` {
		t.Errorf("%+v", n.Annotations)
	}
	o := b.get(d).Status.Remediation(1).Outcome
	if o.State != v1alpha1.ResultSucceeded || o.Values["changed"] != "true" || !strings.Contains(o.Message, "is cordoned") || o.CompletionTime == nil {
		t.Errorf("%+v", o)
	}
	b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown Verifying")
	if got := b.slots(p); got != node+":cordon" {
		t.Errorf("the slot is not held: %q", got)
	}
	b.waitFor("the metric has the slot", func() bool { return r.count(t, "kernosis_remediation_slots", "policy", p) == 1 })
	b.problem(d, v1alpha1.ProblemGone)
	b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
	b.waitIs("slots", node+":cordon+", func() string { return b.slots(p) })
	b.waitEvents(d.UID, "Cordoned", "RepairVerified")
	b.waitEvents(n.UID, "Cordoned", "RepairVerified")
	for name, labels := range map[string][]string{
		"kernosis_remediation_decisions_total":     {"policy", p, "verb", "Run", "reason", "Allowed"},
		"kernosis_remediation_repairs_total":       {"operation", "cordon", "outcome", "Succeeded"},
		"kernosis_remediation_verifications_total": {"operation", "cordon", "result", "Helped"},
	} {
		kubetest.AwaitSum(t, r.registry, 1, name, labels...)
	}
	// Its cooldown is not over.
	again := b.diagnose(node, set, nil)
	b.waitDecision(again, 1, "Wait Cooldown")
	b.problem(again, v1alpha1.ProblemGone)
	b.waitDecision(again, 1, "Withheld ProblemResolved")
	b.waitEvents(again.UID, "RepairWaits", "RepairWithheld")
}

func TestNotHelped(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.VerifyWithin = metav1.Duration{Duration: 2 * time.Second} })
	b.control(nil)
	d := b.diagnose(node, b.set("cordon"), nil)
	b.waitCondition(d, v1alpha1.ConditionVerified, "False NotHelped")
	b.waitIs("a gentle repair's slot", "", func() string { return b.slots(p) }) // its cooldown is zero
	b.waitEvents(d.UID, "Cordoned", "RepairDidNotHelp")
}

// The verification of a repair does not depend on the difference between the node's and the
// controller's clock, for repairs of the controller and of the node.
func TestClocksThatDiffer(t *testing.T) {
	testenv.OnlyInTestAll(t)
	for _, skew := range []time.Duration{-10 * time.Second, 5 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			b := newBench(t)
			b.agents.skew.Store(int64(skew))
			nodes := b.nodes(4)
			for _, name := range nodes {
				n := b.node(name)
				for i := range n.Status.Conditions {
					n.Status.Conditions[i].LastTransitionTime = metav1.NewTime(b.agents.now().Add(-time.Hour))
				}
				if err := b.client.Status().Update(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			within, four := testenv.Within(8*time.Second), int32(4)
			p := b.policy(func(p *v1alpha1.RemediationPolicySpec) {
				p.VerifyWithin, p.Budget.MaxNodes = metav1.Duration{Duration: within}, &four
			})
			b.control(nil)
			var lasts, helps []*v1alpha1.Diagnosis
			for i, set := range []string{b.set("cordon"), b.set("restart-unit")} {
				lasts = append(lasts, b.diagnose(nodes[2*i], set, nil))
				helps = append(helps, b.diagnose(nodes[2*i+1], set, nil))
			}
			for _, d := range append(helps, lasts...) {
				b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown Verifying")
			}
			since := time.Now()
			for _, d := range helps {
				b.problem(d, v1alpha1.ProblemGone)
				b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
			}
			for _, d := range lasts {
				b.waitCondition(d, v1alpha1.ConditionVerified, "False NotHelped")
				if took := time.Since(since); took < within/4 || took > within+testenv.Within(20*time.Second) {
					t.Errorf("%s has not helped after %s, of %s", b.get(d).Status.Result(1).Operation, took, within)
				}
			}
			b.waitIs("slots", "", func() string { return b.slots(p) })
		})
	}
}

func TestControlPlaneIsSkipped(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
	p := b.policy(nil)
	b.control(nil)
	set := b.set("cordon")
	d := b.diagnose(node, set, nil)
	b.waitDecision(d, 1, "Withheld ControlPlaneSkipped")
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	if b.node(node).Spec.Unschedulable || b.slots(p) != "" {
		t.Error("it was cordoned")
	}
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.IncludeControlPlane = true })
	b.waitPhase(b.diagnose(node, set, nil), v1alpha1.PhaseSucceeded)
	b.waitFor("it is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
}
