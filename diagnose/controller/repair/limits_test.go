package repair

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// paused returns a policy's condition Paused as "Status Reason".
func (b *bench) paused(name string) string {
	b.Helper()
	p := &v1alpha1.RemediationPolicy{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: name}, p); err != nil {
		b.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionPaused {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// A controller that makes no repairs also reports whether a policy is valid.
func TestAccepted(t *testing.T) {
	b := newBench(t)
	good, bad := b.policy(nil), b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		p.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 5-2 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	})
	b.control(func(c *Config) { c.DryRun = true })
	for name, want := range map[string]string{good: "True Accepted", bad: "False Invalid"} {
		b.waitIs("condition", want, func() string {
			c := meta.FindStatusCondition(b.policyOf(name).Status.Conditions, v1alpha1.ConditionAccepted)
			if c == nil {
				return ""
			}
			if name == bad && !strings.Contains(c.Message, "spec.maintenanceWindows[0].schedule") {
				t.Error(c.Message)
			}
			return string(c.Status) + " " + c.Reason
		})
	}
	b.waitIs("condition", "True Invalid", func() string { return b.paused(bad) })
}

func TestPauseAndMaintenanceWindow(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Pause = true })
	// It is noon; the window is at night.
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := b.control(func(c *Config) { c.Now = func() time.Time { return now } })
	d := b.diagnose(node, b.set("cordon"), nil)
	b.waitDecision(d, 1, "Wait Paused")
	b.waitIs("condition", "True Paused", func() string { return b.paused(p) })
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) {
		p.Pause = false
		p.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: 6 * time.Hour}, TimeZone: "UTC"}}
	})
	b.waitDecision(d, 1, "Wait OutsideMaintenanceWindow")
	b.waitIs("condition", "True OutsideMaintenanceWindow", func() string { return b.paused(p) })
	if b.slots(p) != "" || b.node(node).Spec.Unschedulable {
		t.Error("it was repaired")
	}
	b.waitEvents(d.UID, "RepairWaits", "RepairWaits")
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) {
		p.MaintenanceWindows[0].Schedule = "0 11 * * *"
	})
	b.waitFor("it is cordoned", func() bool { return b.node(node).Spec.Unschedulable })
	b.waitIs("condition", "False NotPaused", func() string { return b.paused(p) })
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// The first step does not help, the second does: it waited for the first, but not for the cooldown.
func TestEscalation(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	restart := b.operation("restart-unit", map[string]string{"unit": "kubelet"})
	cordon := b.operation("cordon", nil)
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		p.CooldownPerNode = &metav1.Duration{Duration: time.Hour}
		p.VerifyWithin = metav1.Duration{Duration: 3 * time.Second}
		p.Escalation = []v1alpha1.EscalationStep{{Operation: restart, Order: 1, Attempts: 1}, {Operation: cordon, Order: 2, Attempts: 1}}
	})
	b.control(nil)
	both := b.set(restart, cordon)
	d := b.diagnose(node, both, nil)
	b.waitDecision(d, 2, "Wait EscalationOrder")
	if b.node(node).Spec.Unschedulable {
		t.Error("the second step has not waited")
	}
	b.waitDecision(d, 2, "Run Allowed")
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	if made := b.made(); !b.node(node).Spec.Unschedulable || len(made) != 1 {
		t.Errorf("%v", made)
	}
	b.problem(d, v1alpha1.ProblemGone)
	b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
	b.waitIs("slots", node+":"+cordon+"+", func() string { return b.slots(p) })
	b.waitEvents(d.UID, "RepairAllowed", "Repaired", "RepairWaits", "RepairDidNotHelp", "Cordoned", "RepairVerified")
}

// A step's own timeout, longer or shorter than verifyWithin, determines how long it may take to
// help, and counts from its end.
func TestTimeoutOfAStep(t *testing.T) {
	for name, test := range map[string]struct{ timeout, within time.Duration }{
		"longer": {time.Hour, time.Second}, "shorter": {2 * time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			node := b.nodes(1)[0]
			restart, cordon := b.operation("restart-unit", map[string]string{"unit": "kubelet"}), b.operation("cordon", nil)
			b.policy(func(p *v1alpha1.RemediationPolicySpec) {
				p.VerifyWithin = metav1.Duration{Duration: test.within}
				p.Escalation = []v1alpha1.EscalationStep{
					{Operation: restart, Order: 1, Attempts: 1, Timeout: &metav1.Duration{Duration: test.timeout}}, {Operation: cordon, Order: 2, Attempts: 1},
				}
			})
			r := b.control(nil)
			d := b.diagnose(node, b.set(restart, cordon), nil)
			b.waitDecision(d, 2, "Wait EscalationOrder")
			b.waitCondition(d, v1alpha1.ConditionVerified, "Unknown Verifying")
			if test.timeout > test.within {
				b.holds("it may help yet", 4*time.Second, func() bool {
					return b.condition(d, v1alpha1.ConditionVerified) == "Unknown Verifying" && b.decision(d, 2) == "Wait EscalationOrder"
				})
				return
			}
			b.waitDecision(d, 2, "Run Allowed")
			kubetest.AwaitSum(t, r.registry, 1, "kernosis_remediation_verifications_total", "operation", restart, "result", "NotHelped")
		})
	}
}

// Attempts count for one episode of a problem, whichever Diagnosis has made them.
func TestAttemptsOfOtherDiagnoses(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	restart := b.operation("restart-unit", map[string]string{"unit": "kubelet"})
	b.policy(func(p *v1alpha1.RemediationPolicySpec) {
		p.VerifyWithin = metav1.Duration{Duration: 2 * time.Second}
		p.Escalation = []v1alpha1.EscalationStep{{Operation: restart, Order: 1, Attempts: 1}}
	})
	b.control(nil)
	set := b.set(restart)
	of := func(episode string) func(*v1alpha1.Diagnosis) {
		return func(d *v1alpha1.Diagnosis) {
			d.Labels = map[string]string{trigger.LabelSource: "problem"}
			d.Annotations = map[string]string{trigger.AnnotationSubject: "kubelet", trigger.AnnotationEpisode: episode}
		}
	}
	first := b.diagnose(node, set, of("2026-11-21T12:00:00Z"))
	b.waitCondition(first, v1alpha1.ConditionVerified, "False NotHelped")
	b.waitDecision(b.diagnose(node, set, of("2026-11-21T12:00:00Z")), 1, "Withheld AttemptsExhausted")
	b.waitDecision(b.diagnose(node, set, of("2026-11-22T12:00:00Z")), 1, "Run Allowed")
}

// A repair that was allowed but has not begun is revoked once it is no longer allowed: the node's
// agent may be away for hours.
func TestAGrantIsTakenBack(t *testing.T) {
	b := newBench(t)
	b.agents.stop() // the agents are away
	node := b.nodes(1)[0]
	p := b.policy(nil)
	b.control(nil)
	d := b.diagnose(node, b.set("restart-unit"), nil)
	b.status(d, func(s *v1alpha1.DiagnosisStatus) {
		s.Phase = v1alpha1.PhaseRunning
		s.Results = []v1alpha1.Result{{ID: 1, Operation: "restart-unit", State: v1alpha1.ResultAwaitingApproval}}
	})
	b.waitDecision(d, 1, "Run Allowed")
	b.waitIs("slots", node+":restart-unit", func() string { return b.slots(p) })
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.Pause = true })
	b.waitDecision(d, 1, "Wait Paused")
	b.waitIs("slots", "", func() string { return b.slots(p) })
	if got := b.condition(d, v1alpha1.ConditionVerified); got != "" {
		t.Error(got)
	}
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.Pause = false })
	b.waitDecision(d, 1, "Run Allowed")
	// It has begun, so it can't be revoked.
	b.status(d, func(s *v1alpha1.DiagnosisStatus) {
		now := metav1.NowMicro()
		s.Checkpoint = &v1alpha1.Checkpoint{Holder: "agent", Time: now, Intent: &v1alpha1.Intent{ID: 1, Operation: "restart-unit", Time: now}}
	})
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.Pause = true })
	b.holds("it stays allowed", 2*time.Second, func() bool { return b.decision(d, 1) == "Run Allowed" })
	// The run ends as Unknown before the repair's end is reported; the node is in service.
	b.changePolicy(p, func(p *v1alpha1.RemediationPolicySpec) { p.VerifyWithin = metav1.Duration{Duration: time.Second} })
	b.status(d, func(s *v1alpha1.DiagnosisStatus) { b.agents.end(s, v1alpha1.PhaseUnknown) })
	b.waitIs("slots", "", func() string { return b.slots(p) })
}

// The Event of a repair that a node's agent made says why it failed, also if the run ends with it.
func TestWhyAnAgentsRepairFailed(t *testing.T) {
	for reason, test := range map[string]struct {
		state v1alpha1.ResultState
		phase v1alpha1.Phase
	}{
		"RepairFailed": {v1alpha1.ResultFailed, v1alpha1.PhaseFailed}, "RepairUnknown": {v1alpha1.ResultUnknown, v1alpha1.PhaseUnknown},
	} {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t)
			b.agents.stop()
			node := b.nodes(1)[0]
			b.policy(nil)
			b.control(nil)
			d := b.diagnose(node, b.set("restart-unit"), nil)
			b.status(d, func(s *v1alpha1.DiagnosisStatus) {
				s.Phase = v1alpha1.PhaseRunning
				s.Results = []v1alpha1.Result{{ID: 1, Operation: "restart-unit", State: v1alpha1.ResultAwaitingApproval}}
			})
			b.waitDecision(d, 1, "Run Allowed")
			b.status(d, func(s *v1alpha1.DiagnosisStatus) {
				now := metav1.NowMicro()
				s.Results[0].State, s.Results[0].StartTime, s.Results[0].Message = test.state, &now, "unit x failed"
				b.agents.end(s, test.phase)
			})
			b.waitIs("note of the Event", "restart-unit: unit x failed", func() string { return b.note(d.UID, reason) })
		})
	}
}

// note returns the note of an object's Event with a reason.
func (b *bench) note(uid types.UID, reason string) string {
	b.Helper()
	var list corev1.EventList
	if err := b.client.List(b.Context(), &list); err != nil {
		b.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.UID == uid && e.Reason == reason {
			return e.Message
		}
	}
	return ""
}

// A repair that was allowed but has not begun takes slots of later policies too, even recreated
// ones. Otherwise its agent would come back and repair beyond their budgets.
func TestAGrantHasSlotsOfLaterPolicies(t *testing.T) {
	b := newBench(t)
	b.agents.stop() // the agents are away
	nodes, set := b.nodes(2), b.set("restart-unit")
	two := func(p *v1alpha1.RemediationPolicySpec) { *p.Budget.MaxNodes = 2 }
	b.policy(two)
	b.control(nil)
	waits := func(node string) *v1alpha1.Diagnosis {
		d := b.diagnose(node, set, nil)
		b.status(d, func(s *v1alpha1.DiagnosisStatus) {
			s.Phase = v1alpha1.PhaseRunning
			s.Results = []v1alpha1.Result{{ID: 1, Operation: "restart-unit", State: v1alpha1.ResultAwaitingApproval}}
		})
		return d
	}
	first := waits(nodes[0])
	b.waitDecision(first, 1, "Run Allowed")
	later := b.policy(nil)
	b.waitIs("slots", nodes[0]+":restart-unit", func() string { return b.slots(later) })
	second := waits(nodes[1])
	b.waitDecision(second, 1, "Wait BudgetExhausted")
	b.policy(func(p *v1alpha1.RemediationPolicySpec) { *p.Budget.MaxNodes = 0 })
	b.waitDecision(first, 1, "Wait BudgetExhausted")
	b.waitIs("slots", "", func() string { return b.slots(later) })
}

func TestWhatCantBeMadeIsRefusedBefore(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	b.control(nil)
	elsewhere := b.server.Node(t)
	pod := b.server.Pod(t, b.system, "db-0", elsewhere)
	d := b.diagnose(node, b.set("evict-pod"), func(d *v1alpha1.Diagnosis) {
		d.Spec.PodReference = &v1alpha1.PodReference{Name: "db-0"}
		d.Spec.Parameters = v1alpha1.Parameters{"podUID": string(pod.UID)}
	})
	b.waitDecision(d, 1, "Withheld Refused")
	if m := b.get(d).Status.Remediation(1).Message; !strings.Contains(m, "is on node "+elsewhere) {
		t.Error(m)
	}
	b.waitDecision(b.diagnose(node, b.set("label-node"), nil), 1, "Withheld Refused") // it lacks a key
	if b.slots(p) != "" {
		t.Error("a slot was taken")
	}
	b.waitEvents(d.UID, "RepairWithheld")
	// Nothing can be planned.
	odd := b.diagnose(node, b.set("restart-unit", "cordon"), nil)
	b.waitDecision(odd, 1, "Wait AwaitingApproval")
	if err := b.client.Delete(t.Context(), &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: odd.Spec.OperationSet}}); err != nil {
		t.Fatal(err)
	}
	b.waitCondition(odd, v1alpha1.ConditionRemediationAllowed, "False Invalid")
}

// A drain continues under the next controller, and is cancelled.
func TestDrainGoesOn(t *testing.T) {
	b := newBench(t)
	nodes, shop := b.nodes(2), b.server.Namespace(t)
	p := b.policy(nil)
	first := b.control(nil)
	drain := b.operation("drain", map[string]string{"force": "true"})
	b.server.Pod(t, shop, "a", nodes[0])
	set := b.set(drain)
	d := b.diagnose(nodes[0], set, nil)
	left := func(d *v1alpha1.Diagnosis) string {
		if rem := b.get(d).Status.Remediation(1); rem != nil && rem.Outcome != nil {
			return string(rem.Outcome.State) + " " + rem.Outcome.Message
		}
		return ""
	}
	b.waitFor("it is under way", func() bool { return strings.HasPrefix(left(d), "Running 1 pod(s) left") })
	b.waitEvents(d.UID, "RepairBegun")
	first.kill()
	first.cancel()
	<-first.ended
	b.server.DeletePod(t, shop, "a")
	b.control(nil)
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	if !strings.HasPrefix(left(d), "Succeeded node "+nodes[0]+" is cordoned and drained") {
		t.Error(left(d))
	}
	b.waitEvents(d.UID, "RepairBegun", "Drained")
	// It did not help: the node is out of service, and its slot stays held.
	b.waitIs("slots", nodes[0]+":"+drain, func() string { return b.slots(p) })
	b.problem(d, v1alpha1.ProblemGone)
	b.waitCondition(d, v1alpha1.ConditionVerified, "True Helped")
	b.waitIs("slots", "", func() string { return b.slots(p) })
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodes[0]}}, `{"spec":{"unschedulable":null}}`)

	b.server.Pod(t, shop, "b", nodes[1])
	d = b.diagnose(nodes[1], set, nil)
	b.waitFor("it is under way", func() bool { return strings.HasPrefix(left(d), "Running 1 pod(s) left") })
	b.patch(&v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}, `{"spec":{"cancel":true}}`)
	b.waitFor("it has ended", func() bool { return strings.HasPrefix(left(d), "Failed cancelled: 1 pod(s) left") })
	b.waitEvents(d.UID, "RepairBegun", "RepairFailed")
}

// A policy that is created during a drain has no slot of it and does not end it: this is how people
// stop all repairs that have not begun.
func TestStopEndsNoDrain(t *testing.T) {
	b := newBench(t)
	node, shop := b.nodes(1)[0], b.server.Namespace(t)
	b.policy(nil)
	b.control(nil)
	b.server.Pod(t, shop, "a", node)
	d := b.diagnose(node, b.set(b.operation("drain", map[string]string{"force": "true"})), nil)
	b.waitFor("it is under way", func() bool {
		rem := b.get(d).Status.Remediation(1)
		return rem != nil && rem.Outcome != nil && strings.HasPrefix(rem.Outcome.Message, "1 pod(s) left")
	})
	stop := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Pause = true })
	b.waitIs("condition", "True Paused", func() string { return b.paused(stop) })
	b.server.DeletePod(t, shop, "a")
	b.waitPhase(d, v1alpha1.PhaseSucceeded)
	b.waitEvents(d.UID, "RepairBegun", "Drained")
}

// The slot of a drain that has not helped is held until the node is in service again, even if the
// Diagnosis is gone.
func TestSlotOfADrainThatDidNotHelp(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	node := b.nodes(1)[0]
	p := b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.VerifyWithin = metav1.Duration{Duration: time.Second} })
	b.control(nil)
	d := b.diagnose(node, b.set("drain"), nil)
	b.waitCondition(d, v1alpha1.ConditionVerified, "False NotHelped")
	b.holds("the slot is held", 3*time.Second, func() bool { return b.slots(p) == node+":drain" })
	if err := b.client.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	b.holds("the slot is held", 3*time.Second, func() bool { return b.slots(p) == node+":drain" })
	b.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, `{"spec":{"unschedulable":null}}`)
	b.waitIs("slots", "", func() string { return b.slots(p) })
}

// awaitsApproval advances a run to a repair, as its node's agent would, to wait for approval.
func (b *bench) awaitsApproval(d *v1alpha1.Diagnosis, id int, operation string) {
	b.Helper()
	b.status(d, func(s *v1alpha1.DiagnosisStatus) {
		s.Phase = v1alpha1.PhaseRunning
		s.Results = append(s.Results, v1alpha1.Result{ID: int32(id), Operation: operation, State: v1alpha1.ResultAwaitingApproval})
	})
	b.waitDecision(d, id, "Wait AwaitingApproval")
}

// forge writes a repair under way into the status.
func (b *bench) forge(d *v1alpha1.Diagnosis, id int) {
	b.Helper()
	b.status(d, func(s *v1alpha1.DiagnosisStatus) {
		rem := s.Remediation(id)
		rem.Verb = v1alpha1.RemediationRun
		rem.Outcome = &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, StartTime: metav1.NowMicro()}
	})
}

// A status with a repair under way is not enough to have it made, because nodes' agents write it
// too.
func TestARepairThatNobodyAllowed(t *testing.T) {
	b := newBench(t)
	b.agents.stop()
	node := b.nodes(1)[0]
	b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	b.control(nil)
	d := b.diagnose(node, b.set("cordon"), nil)
	b.awaitsApproval(d, 1, "cordon")
	b.forge(d, 1)
	b.waitFor("it is not believed", func() bool {
		return b.get(d).Status.Remediation(1).Outcome.State == v1alpha1.ResultUnknown
	})
	if b.node(node).Spec.Unschedulable {
		t.Error("it was made")
	}
}

// Nor is it enough while the Diagnosis holds the slot of another of its repairs.
func TestARepairThatNobodyAllowedBehindAnother(t *testing.T) {
	b := newBench(t)
	b.agents.stop()
	node := b.nodes(1)[0]
	b.policy(func(p *v1alpha1.RemediationPolicySpec) { p.Mode = v1alpha1.ModeApprove })
	b.control(nil)
	label := b.operation("label-node", map[string]string{"key": "example.org/state", "value": "sick"})
	d := b.diagnose(node, b.set(label, "cordon"), nil)
	b.awaitsApproval(d, 1, label)
	b.approve(d, b.get(d).Status.Plan.Digest)
	b.waitFor("the first one is made", func() bool {
		rem := b.get(d).Status.Remediation(1)
		return rem != nil && rem.Outcome != nil && rem.Outcome.State == v1alpha1.ResultSucceeded
	})
	b.status(d, func(s *v1alpha1.DiagnosisStatus) { s.Results[0].State = v1alpha1.ResultSucceeded })
	b.awaitsApproval(d, 2, "cordon")
	b.forge(d, 2)
	b.waitFor("it is not believed", func() bool {
		return b.get(d).Status.Remediation(2).Outcome.State != v1alpha1.ResultRunning
	})
	if state := b.get(d).Status.Remediation(2).Outcome.State; state != v1alpha1.ResultUnknown || b.node(node).Spec.Unschedulable {
		t.Errorf("it is %s, and the node's unschedulable is %v", state, b.node(node).Spec.Unschedulable)
	}
}

// Only the checked plan is allowed: changing the Operation of a running drain ends the drain.
func TestAnOperationThatIsChangedOnTheWay(t *testing.T) {
	b := newBench(t)
	node := b.nodes(1)[0]
	b.policy(nil)
	b.control(nil)
	drain := b.operation("drain", map[string]string{"force": "true"})
	b.server.Pod(t, b.server.Namespace(t), "a", node)
	d := b.diagnose(node, b.set(drain), nil)
	state := func() v1alpha1.ResultState {
		if rem := b.get(d).Status.Remediation(1); rem != nil && rem.Outcome != nil && rem.Outcome.Message != "" {
			return rem.Outcome.State
		}
		return ""
	}
	b.waitFor("it is under way", func() bool { return state() == v1alpha1.ResultRunning })
	b.patch(&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: drain}}, `{"spec":{"processor":{"builtin":{"parameters":{"deleteEmptyDirData":"true"}}}}}`)
	b.waitFor("it ends", func() bool { return state() == v1alpha1.ResultUnknown })
	b.waitPhase(d, v1alpha1.PhaseRunning) // its node's agent asks for a new decision
	b.waitEvents(d.UID, "RepairBegun", "RepairUnknown")
}
