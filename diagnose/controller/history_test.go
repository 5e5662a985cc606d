package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// old creates a Diagnosis that ended some time ago.
func (b *bench) old(ago time.Duration, ttl time.Duration, labels ...string) *v1alpha1.Diagnosis {
	b.t.Helper()
	d := b.dx(v1alpha1.DiagnosisSpec{NodeName: "n1", TTL: metav1.Duration{Duration: ttl}}, labels...)
	ended := time.Now().Add(-ago)
	// The API server accepts no creation time but now.
	made := b.get(d)
	made.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.KindDiagnosis))
	made.CreationTimestamp, made.ResourceVersion = metav1.NewTime(ended.Add(-time.Minute)), ""
	text, err := json.Marshal(made)
	if err == nil {
		err = b.server.EtcdPut(b.t.Context(), "/registry/kernosis.io/diagnoses/"+d.Namespace+"/"+d.Name, text)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.write(d, finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, ended))
	return d
}

// The end that a node reports is limited by the API server's clock: a clock that is behind loses no
// Diagnosis, and one that is ahead evicts none.
func TestClocksOfNodesThatDiffer(t *testing.T) {
	b := newBench(t)
	var behind []*v1alpha1.Diagnosis
	for _, by := range []time.Duration{2 * time.Hour, 26 * time.Hour} {
		d := b.dx(v1alpha1.DiagnosisSpec{NodeName: "n1", TTL: metav1.Duration{Duration: time.Hour}})
		b.write(d, finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now().Add(-by)))
		b.write(d, repaired)
		behind = append(behind, d)
	}
	r := b.control(nil)
	b.waitIs(b.old(time.Hour, time.Minute), "gone")
	for _, d := range behind {
		if b.get(d) == nil {
			t.Errorf("%s has gone as soon as it had ended", d.Name)
		}
	}
	kubetest.AwaitSum(t, r.registry, 1, "kernosis_controller_diagnoses_deleted_total", "reason", "ttl")
}

// repaired marks it as having an unverified repair.
func repaired(s *v1alpha1.DiagnosisStatus) {
	s.Remediations = []v1alpha1.Remediation{{ID: 1, PlanDigest: v1alpha1.Digest(strings.Repeat("a", 64)), Verb: v1alpha1.RemediationRun, Time: metav1.NowMicro()}}
}

func verified(s *v1alpha1.DiagnosisStatus) {
	apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionTrue, Reason: "Helped"})
}

// left returns the names of a namespace's Diagnoses.
func (b *bench) left() map[string]bool {
	b.t.Helper()
	var list v1alpha1.DiagnosisList
	if err := b.client.List(context.Background(), &list, client.InNamespace(b.namespace)); err != nil {
		b.t.Fatal(err)
	}
	out := map[string]bool{}
	for i := range list.Items {
		out[list.Items[i].Name] = true
	}
	return out
}

func TestTTL(t *testing.T) {
	b := newBench(t)
	over, stays := b.old(time.Hour, time.Minute), b.old(time.Hour, 2*time.Hour)
	kept, slot := b.old(time.Hour, time.Minute), b.old(time.Hour, time.Minute)
	b.write(kept, repaired)
	settled := b.old(time.Hour, time.Minute)
	b.write(settled, func(s *v1alpha1.DiagnosisStatus) {
		repaired(s)
		s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: "Moot", LastTransitionTime: metav1.Now()})
	})
	b.write(kept, func(s *v1alpha1.DiagnosisStatus) {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: "Verifying", LastTransitionTime: metav1.Now()})
	})
	given := b.old(26*time.Hour, time.Minute)
	b.write(given, repaired)
	p := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.name("p")}}
	b.create(p)
	p.Status.Repairs = []v1alpha1.Repair{{Node: "n1", Diagnosis: b.get(slot).UID, Operation: "drain", StartTime: metav1.Now()}}
	if err := b.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	soon := b.old(56*time.Second, time.Minute)
	due := b.get(soon).Status.CompletionTime.Add(time.Minute)
	r := b.control(nil)
	b.waitIs(over, "gone")
	b.waitIs(given, "gone")
	b.waitIs(settled, "gone")
	if b.get(soon) == nil && time.Now().Before(due.Add(-time.Second)) {
		t.Error("it went before its time")
	}
	b.waitIs(soon, "gone")
	if late := time.Since(due); late < -200*time.Millisecond || late > testenv.Within(5*time.Second) {
		t.Errorf("it went %s after its time", late)
	}
	for what, d := range map[string]*v1alpha1.Diagnosis{"not due": stays, "not verified": kept, "holds a slot": slot} {
		if b.get(d) == nil {
			t.Errorf("%s: it is gone", what)
		}
	}
	b.write(kept, verified)
	b.waitIs(kept, "gone")
	kubetest.AwaitSum(t, r.registry, 5, "kernosis_controller_diagnoses_deleted_total", "reason", "ttl")
}

// A Diagnosis stays while a follow-up of its repair is running.
func TestWhatIsFollowedStays(t *testing.T) {
	b := newBench(t)
	name := b.server.Node(t)
	b.agent(name)
	first := b.old(time.Hour, time.Minute)
	follows := b.newDx(v1alpha1.DiagnosisSpec{NodeName: name})
	follows.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.get(first), v1alpha1.GroupVersion().WithKind(v1alpha1.KindDiagnosis))}
	b.create(follows)
	b.control(nil)
	b.holds("both stay", 2*time.Second, func() bool { return b.get(first) != nil && b.get(follows) != nil })
	b.write(follows, finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now()))
	b.waitIs(first, "gone")
	b.waitIs(follows, "gone")
}

// A follow-up may still run when its root has ended longer ago than a repair can take to verify.
func TestARunningFollowUpKeepsAnOldRoot(t *testing.T) {
	b := newBench(t)
	name := b.server.Node(t)
	b.agent(name)
	first := b.old(26*time.Hour, time.Minute)
	follows := b.newDx(v1alpha1.DiagnosisSpec{NodeName: name})
	follows.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.get(first), v1alpha1.GroupVersion().WithKind(v1alpha1.KindDiagnosis))}
	b.create(follows)
	b.control(nil)
	b.holds("both stay", 2*time.Second, func() bool { return b.get(first) != nil && b.get(follows) != nil })
}

func TestHistoryOfATrigger(t *testing.T) {
	b := newBench(t)
	limit := int32(3)
	trigger := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("t-%d", time.Now().UnixNano())}, Spec: v1alpha1.TriggerSpec{
		OperationSet: "any", NodeName: "n1", HistoryLimit: &limit, SourceTemplate: v1alpha1.SourceTemplate{CronTemplate: &v1alpha1.CronTemplate{Schedule: "0 2 * * *"}},
	}}
	b.create(trigger)
	// The oldest is kept because its repair is not verified. No controller may see it without the
	// repair.
	kept := b.old(6*time.Minute, time.Hour, v1alpha1.LabelTrigger, trigger.Name)
	b.write(kept, repaired)
	r := b.control(nil)
	var made []*v1alpha1.Diagnosis
	for i := range 5 { // the first ended last
		made = append(made, b.old(time.Duration(i+1)*time.Minute, time.Hour, v1alpha1.LabelTrigger, trigger.Name))
	}
	others := b.old(time.Hour, 2*time.Hour, v1alpha1.LabelTrigger, "another")
	want := []*v1alpha1.Diagnosis{made[0], made[1], kept, others}
	b.waitFor("three are left", func() bool { return len(b.left()) == len(want) })
	for _, d := range want {
		if b.get(d) == nil {
			t.Errorf("%s is gone", d.Name)
		}
	}
	b.waitFor("the limit is changed", func() bool {
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(trigger), trigger); err != nil {
			t.Fatal(err)
		}
		one := int32(1)
		trigger.Spec.HistoryLimit = &one
		return b.client.Update(t.Context(), trigger) == nil
	})
	b.waitIs(made[0], "gone")
	b.waitIs(made[1], "gone")
	b.holds("the one that is needed stays", time.Second, func() bool { return b.get(kept) != nil })
	kubetest.AwaitSum(t, r.registry, 5, "kernosis_controller_diagnoses_deleted_total", "reason", "history")
}

// A node with a recurring fault leaves the other nodes their history.
func TestHistoryOfManyNodes(t *testing.T) {
	b := newBench(t)
	limit := int32(4)
	trigger := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: b.name("t")}, Spec: v1alpha1.TriggerSpec{
		OperationSet: "any", NodeName: "n1", HistoryLimit: &limit, SourceTemplate: v1alpha1.SourceTemplate{CronTemplate: &v1alpha1.CronTemplate{Schedule: "0 2 * * *"}},
	}}
	b.create(trigger)
	var noisy, quiet []*v1alpha1.Diagnosis
	for i := range 5 { // the first ended last
		noisy = append(noisy, b.old(time.Duration(i+1)*time.Minute, 2*time.Hour, v1alpha1.LabelTrigger, trigger.Name))
	}
	for _, node := range []string{"n2", "n3"} {
		d := b.dx(v1alpha1.DiagnosisSpec{NodeName: node}, v1alpha1.LabelTrigger, trigger.Name)
		b.write(d, finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now().Add(-time.Hour)))
		quiet = append(quiet, d)
	}
	b.control(nil)
	b.waitFor("four are left", func() bool { return len(b.left()) == 4 })
	for _, d := range append(noisy[:2], quiet...) {
		if b.get(d) == nil {
			t.Errorf("%s of node %s is gone", d.Name, d.Spec.NodeName)
		}
	}
}

// Triggers can't fill the API server: ended Diagnoses are bounded, and children count and are
// deleted with their parent.
func TestCap(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	r := b.control(func(c *controller.Config) { c.MaxEnded = 4 })
	label := b.name("pool")
	b.nodes(label, 2)
	parent := b.dx(v1alpha1.DiagnosisSpec{OperationSet: b.set(), TargetSelector: selectNodes(label, 0)})
	b.waitFor("they are made", func() bool { return targets(b.get(parent)).Created == 2 })
	children := b.children(parent)
	for i := range children {
		b.write(&children[i], finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now()))
	}
	b.waitIs(parent, "Succeeded True "+v1alpha1.ReasonTargetsSucceeded)
	runs := b.dx(v1alpha1.DiagnosisSpec{NodeName: b.server.Node(t)})
	b.write(runs, begin)
	oldest := b.old(time.Hour, 2*time.Hour, v1alpha1.LabelTrigger, "a")
	b.holds("four stay", 2*time.Second, func() bool { return len(b.left()) == 5 && b.get(oldest) != nil })
	newer := b.old(0, 2*time.Hour, v1alpha1.LabelTrigger, "b")
	b.waitIs(oldest, "gone")
	b.old(0, 2*time.Hour, v1alpha1.LabelTrigger, "c")
	b.waitIs(parent, "gone") // and three with it
	for i := range children {
		b.waitIs(&children[i], "gone")
	}
	if b.get(newer) == nil || b.get(runs) == nil {
		t.Error("one that was to stay is gone")
	}
	kubetest.AwaitSum(t, r.registry, 2, "kernosis_controller_diagnoses_deleted_total", "reason", "cap")
	kubetest.AwaitSum(t, r.registry, 2, "kernosis_controller_diagnoses_deleted_total", "reason", "parent")
}

// A Diagnosis that ended while the controller was down, and whose parent is gone, is deleted too.
func TestOrphan(t *testing.T) {
	b := newBench(t)
	parent := b.dx(v1alpha1.DiagnosisSpec{TargetSelector: &v1alpha1.TargetSelector{NodeNames: []string{"n1"}}})
	d := b.newDx(v1alpha1.DiagnosisSpec{NodeName: "n1"})
	d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.get(parent), v1alpha1.GroupVersion().WithKind(v1alpha1.KindDiagnosis))}
	b.create(d)
	b.delete(parent)
	again := b.newDx(v1alpha1.DiagnosisSpec{TargetSelector: &v1alpha1.TargetSelector{NodeNames: []string{"n1"}}, OperationSet: "no-such-set"})
	again.Name = parent.Name
	b.create(again)
	b.control(nil)
	b.waitIs(d, "gone")
}
