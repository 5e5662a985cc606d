package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// quick sets all timeouts to seconds. An agent is silent only after longer than a busy API server
// may take for a renewal.
func quick(c *controller.Config) {
	c.Silent, c.PodWait, c.PendingSilent, c.RunningSilent = 4*time.Second, 4*time.Second, 5*time.Second, 6*time.Second
}

func TestNodeThatDoesNotExist(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	b.waitIs(b.dx(v1alpha1.DiagnosisSpec{NodeName: "nor-this-one"}), "Failed True "+v1alpha1.ReasonNodeNotFound) // the controller works
	began := time.Now()
	d := b.dx(v1alpha1.DiagnosisSpec{NodeName: "no-such-node"})
	contains(t, b.waitIs(d, "Failed True "+v1alpha1.ReasonNodeNotFound), "no-such-node")
	if took := time.Since(began); took > testenv.Within(10*time.Second) {
		t.Errorf("took %s", took)
	}
	if have := b.get(d); have.Status.CompletionTime == nil || have.Status.ObservedGeneration != have.Generation || have.Status.Subject != "no-such-node" {
		t.Errorf("%+v", have.Status)
	}
}

func TestNodeThatIsDeleted(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	name := b.server.Node(t)
	b.agent(name)
	runs, repairs, waits := b.dx(v1alpha1.DiagnosisSpec{NodeName: name}), b.dx(v1alpha1.DiagnosisSpec{NodeName: name}), b.dx(v1alpha1.DiagnosisSpec{NodeName: name})
	b.write(runs, begin)
	b.write(repairs, func(s *v1alpha1.DiagnosisStatus) {
		begin(s)
		s.Checkpoint.Intent = &v1alpha1.Intent{ID: 3, Operation: "restart-kubelet", Time: metav1.NowMicro()}
	})
	b.waitIs(waits, "Pending")
	b.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	b.waitIs(runs, "Failed True "+v1alpha1.ReasonNodeNotFound)
	b.waitIs(waits, "Failed True "+v1alpha1.ReasonNodeNotFound)
	contains(t, b.waitIs(repairs, "Unknown True "+v1alpha1.ReasonOutcomeUnknown), "restart-kubelet", "node 3", name)
	if b.get(repairs).Status.Checkpoint.Intent == nil {
		t.Error("the intent was taken away")
	}
}

// A Diagnosis of a node with a silent agent waits, reports that, continues when the agent is back,
// and does not wait forever.
func TestSilentAgent(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	b.control(quick)
	name := b.server.Node(t)
	d := b.dx(v1alpha1.DiagnosisSpec{NodeName: name})
	contains(t, b.waitIs(d, "Pending False "+v1alpha1.ReasonAgentSilent), "no agent of node "+name)
	stop := b.agent(name)
	b.waitIs(d, "Pending")
	b.write(d, begin)
	b.holds("it runs", 3*time.Second, func() bool { return is(b.get(d)) == "Running" })
	repairs := b.dx(v1alpha1.DiagnosisSpec{NodeName: name})
	b.write(repairs, func(s *v1alpha1.DiagnosisStatus) {
		begin(s)
		s.Results = []v1alpha1.Result{{ID: 2, Operation: "restart", State: v1alpha1.ResultRunning}}
		s.Remediations = []v1alpha1.Remediation{{ID: 2, PlanDigest: v1alpha1.Digest(strings.Repeat("a", 64)), Verb: v1alpha1.RemediationRun, Time: metav1.NowMicro(),
			Outcome: &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, StartTime: metav1.NowMicro()}}}
	})
	done := b.dx(v1alpha1.DiagnosisSpec{NodeName: name}) // a live agent has 6 s to begin it
	b.waitIs(done, "Pending")
	stop()
	quiet := time.Now()
	contains(t, b.waitIs(done, "Failed True "+v1alpha1.ReasonNodeSilent), "has not reported since", "5s")
	contains(t, b.waitIs(d, "Failed True "+v1alpha1.ReasonNodeSilent), "6s")
	if took := time.Since(quiet); took < 5*time.Second {
		t.Errorf("it ended after %s", took)
	}
	contains(t, b.waitIs(repairs, "Unknown True "+v1alpha1.ReasonOutcomeUnknown), "restart")
	cancelled := b.dx(v1alpha1.DiagnosisSpec{NodeName: name, Cancel: true})
	b.waitIs(cancelled, "Cancelled True "+v1alpha1.ReasonCancelled)
}

// A Diagnosis that a live agent does not begin, or whose own agent is gone, ends too. One that its
// live agent runs is left to it, even if that writes nothing for as long as the run takes.
func TestAgentThatReportsAndDoesNothing(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	b.control(func(c *controller.Config) { quick(c); c.RunningSilent = 3 * time.Second })
	name := b.server.Node(t)
	b.agent(name)
	left, stuck, waits := b.dx(v1alpha1.DiagnosisSpec{NodeName: name}), b.dx(v1alpha1.DiagnosisSpec{NodeName: name}), b.dx(v1alpha1.DiagnosisSpec{NodeName: name})
	b.write(stuck, func(s *v1alpha1.DiagnosisStatus) { begin(s); s.Checkpoint.Holder = "another" })
	runs := b.dx(v1alpha1.DiagnosisSpec{NodeName: name})
	b.write(runs, begin)
	b.write(waits, func(s *v1alpha1.DiagnosisStatus) {
		begin(s)
		s.Results = []v1alpha1.Result{{ID: 1, Operation: "restart", State: v1alpha1.ResultAwaitingApproval}}
	})
	contains(t, b.waitIs(left, "Failed True "+v1alpha1.ReasonNodeSilent), "has not started it within 3s")
	contains(t, b.waitIs(stuck, "Failed True "+v1alpha1.ReasonNodeSilent), "has reported no progress for 3s")
	b.holds("they are left to it", 4*time.Second, func() bool { return is(b.get(waits)) == "Running" && is(b.get(runs)) == "Running" })
}

func (b *bench) pod(name, node string) *corev1.Pod {
	b.t.Helper()
	return b.podIn(b.namespace, name, node, nil)
}

func (b *bench) podIn(namespace, name, node string, labels map[string]string) *corev1.Pod {
	b.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}}},
	}
	b.create(p)
	return p
}

func (b *bench) running(p *corev1.Pod) {
	b.t.Helper()
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = "10.9.8.7"
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	if err := b.client.Status().Update(context.Background(), p); err != nil {
		b.t.Fatal(err)
	}
}

func about(pod string) v1alpha1.DiagnosisSpec {
	return v1alpha1.DiagnosisSpec{PodReference: &v1alpha1.PodReference{Name: pod}}
}

func TestPodDecidesTheNode(t *testing.T) {
	b := newBench(t)
	b.control(quick)
	name, other := b.server.Node(t), b.server.Node(t)
	b.agent(name)
	b.pod("there", name)
	d := b.dx(about("there"))
	b.waitFor("it is placed", func() bool { return b.get(d).Spec.NodeName == name })
	b.waitIs(d, "Pending")
	if c := apimeta.FindStatusCondition(b.get(d).Status.Conditions, v1alpha1.ConditionPlaced); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNodeOfPod {
		t.Errorf("condition %+v", c)
	}

	missing := b.dx(about("missing"))
	contains(t, b.waitIs(missing, "Failed True "+v1alpha1.ReasonPodNotFound), b.namespace+"/missing")
	if have := b.get(missing); have.Status.Subject != b.namespace+"/missing" {
		t.Errorf("subject %q", have.Status.Subject)
	}

	b.pod("late", "")
	late := b.dx(about("late"))
	contains(t, b.waitIs(late, "Pending False "+v1alpha1.ReasonPodNotScheduled), "late is on no node")
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "late"}, Target: corev1.ObjectReference{Kind: "Node", Name: name}}
	if err := b.server.Client().CoreV1().Pods(b.namespace).Bind(t.Context(), bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.waitFor("it is placed", func() bool { return b.get(late).Spec.NodeName == name })
	b.waitIs(late, "Pending")

	b.pod("never", "")
	contains(t, b.waitIs(b.dx(about("never")), "Failed True "+v1alpha1.ReasonPodNotFound), "is on no node; waited for 4s")

	elsewhere := about("there")
	elsewhere.NodeName = other
	contains(t, b.waitIs(b.dx(elsewhere), "Failed True "+v1alpha1.ReasonPodNotFound), "is on node "+name+", not on "+other)
	moved := b.dx(elsewhere, "kernosis.io/trigger-source", "problem")
	b.waitIs(moved, "Pending False "+v1alpha1.ReasonAgentSilent)

	cancel := about("never")
	cancel.Cancel = true
	b.waitIs(b.dx(cancel), "Cancelled True "+v1alpha1.ReasonCancelled)
}

// Outside the system namespace a Diagnosis is about a pod of its own namespace, and only the
// controller sets its node.
func TestOutsideTheSystemNamespace(t *testing.T) {
	b := newBench(t)
	name, tenant := b.server.Node(t), b.server.Namespace(t)
	safe := b.name("safe")
	b.create(&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: safe}, Spec: v1alpha1.OperationSpec{TenantSafe: true, Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "cgroup-memory"}}}})
	allowed, facts := b.set(safe), b.set()
	b.running(b.podIn(tenant, "own", name, nil))
	b.running(b.pod("system", name))
	b.agent(name)
	b.control(nil)
	own := func(set string) v1alpha1.DiagnosisSpec {
		s := about("own")
		s.OperationSet = set
		return s
	}
	for what, c := range map[string]struct {
		spec   v1alpha1.DiagnosisSpec
		reason string
		says   string
	}{
		"node":          {v1alpha1.DiagnosisSpec{OperationSet: allowed, NodeName: name}, v1alpha1.ReasonNotAllowed, "podReference"},
		"targets":       {v1alpha1.DiagnosisSpec{OperationSet: allowed, TargetSelector: &v1alpha1.TargetSelector{NodeNames: []string{name}}}, v1alpha1.ReasonNotAllowed, "targetSelector"},
		"other's pod":   {v1alpha1.DiagnosisSpec{OperationSet: allowed, PodReference: &v1alpha1.PodReference{Namespace: b.namespace, Name: "system"}}, v1alpha1.ReasonNotAllowed, b.namespace},
		"not safe":      {own(facts), v1alpha1.ReasonNotAllowed, "kernel-facts"},
		"no set":        {own("no-such-set"), v1alpha1.ReasonOperationSetNotFound, "no-such-set"},
		"node with pod": {func() v1alpha1.DiagnosisSpec { s := own(allowed); s.NodeName = name; return s }(), v1alpha1.ReasonNotAllowed, "spec.nodeName"},
		"parameter": {func() v1alpha1.DiagnosisSpec {
			s := own(allowed)
			s.Parameters = v1alpha1.Parameters{"cgroup": "/"}
			return s
		}(), v1alpha1.ReasonNotAllowed, "cgroup"},
	} {
		d := b.newDx(c.spec)
		d.Namespace = tenant
		b.create(d)
		if message := b.waitIs(d, "Failed True "+c.reason); !strings.Contains(message, c.says) {
			t.Errorf("%s: %q", what, message)
		}
	}
	d := b.newDx(own(allowed))
	d.Namespace = tenant
	b.create(d)
	b.waitFor("it is placed", func() bool { return b.get(d).Spec.NodeName == name })
	b.holds("it is pending", time.Second, func() bool { return is(b.get(d)) == "Pending" })
	b.write(d, begin)
	b.holds("it runs", time.Second, func() bool { return is(b.get(d)) == "Running" })
}

// A user without the right to write the status can't make his own choice of node look like the
// controller's, not even by setting it while the controller is about to.
func TestNodeOfAUserIsDistinguishedFromTheControllers(t *testing.T) {
	b := newBench(t)
	name, other, tenant := b.server.Node(t), b.server.Node(t), b.server.Namespace(t)
	safe := b.name("safe")
	b.create(&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: safe}, Spec: v1alpha1.OperationSpec{TenantSafe: true, Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "cgroup-memory"}}}})
	set := b.set(safe)
	b.podIn(tenant, "own", "", nil)
	b.control(nil)
	d := b.newDx(about("own"))
	d.Namespace, d.Spec.OperationSet = tenant, set
	b.create(d)
	b.waitIs(d, "Pending False "+v1alpha1.ReasonPodNotScheduled)
	b.waitFor("the user sets the node", func() bool {
		have := b.get(d)
		have.Spec.NodeName = other
		return b.client.Update(t.Context(), have) == nil
	})
	contains(t, b.waitIs(d, "Failed True "+v1alpha1.ReasonNotAllowed), "spec.nodeName")
	_ = name
}

// What the controller adds stays within the size limit of a status, whatever the agent has written.
func TestStatusKeepsToItsBound(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	b.control(quick)
	name := b.server.Node(t)
	stop := b.agent(name)
	d := b.dx(v1alpha1.DiagnosisSpec{NodeName: name})
	b.write(d, func(s *v1alpha1.DiagnosisStatus) {
		begin(s)
		for i := range int32(90) {
			s.Results = append(s.Results, v1alpha1.Result{ID: i + 1, Operation: strings.Repeat("o", 200), State: v1alpha1.ResultSucceeded, Values: map[string]string{"v": strings.Repeat("x", 1800)}})
		}
		s.Checkpoint.Intent = &v1alpha1.Intent{ID: 3, Operation: strings.Repeat("o", 253), Time: metav1.NowMicro()}
	})
	before, err := json.Marshal(b.get(d).Status)
	if err != nil || len(before) < 180<<10 {
		t.Fatalf("%d bytes, %v", len(before), err)
	}
	stop()
	b.waitIs(d, "Unknown True "+v1alpha1.ReasonOutcomeUnknown)
	after, err := json.Marshal(b.get(d).Status)
	if err != nil || len(after) > v1alpha1.MaxStatusBytes || len(after) > len(before)+4<<10 {
		t.Errorf("%d bytes, before %d, %v", len(after), len(before), err)
	}
	if n := len(b.get(d).Status.Results); n != 90 {
		t.Errorf("%d results are left", n)
	}
}

func TestEventsAndMetrics(t *testing.T) {
	b := newBench(t)
	r := b.control(nil)
	name := b.server.Node(t)
	b.agent(name)
	d := b.dx(v1alpha1.DiagnosisSpec{OperationSet: "hung-task", NodeName: name})
	refused := b.dx(v1alpha1.DiagnosisSpec{NodeName: "no-such-node"})
	b.waitIs(refused, "Failed True "+v1alpha1.ReasonNodeNotFound) // the controller watches
	b.write(d, begin)
	b.waitFor("the start is reported", func() bool { return len(b.events(d)) == 1 })
	b.write(d, func(s *v1alpha1.DiagnosisStatus) {
		finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now())(s)
		s.Verdict = &v1alpha1.Verdict{Reason: "DiskStalled", Message: "nvme1n1: 14 in flight"}
	})
	b.waitFor("the end is reported", func() bool { return len(b.events(d)) == 2 })
	b.write(d, func(s *v1alpha1.DiagnosisStatus) {
		s.Problem = &v1alpha1.Problem{State: v1alpha1.ProblemGone, Since: metav1.NowMicro()}
	})
	b.waitFor("the refusal is reported", func() bool { return len(b.events(refused)) == 1 })
	if have := fmt.Sprint(b.events(d)); have != fmt.Sprintf("[Normal DiagnosisStarted runs the OperationSet hung-task on node %s Normal DiagnosisSucceeded DiskStalled: nvme1n1: 14 in flight]", name) {
		t.Error(have)
	}
	if have := fmt.Sprint(b.events(refused)); have != "[Warning DiagnosisRefused NodeNotFound; no node is named no-such-node]" {
		t.Error(have)
	}
	if wrong, err := testutil.GatherAndLint(r.registry); err != nil || len(wrong) > 0 {
		t.Errorf("metrics: %v, %v", wrong, err)
	}
	b.waitFor("the metrics tell", func() bool {
		return r.count(t, "kernosis_controller_diagnoses", "phase", "Succeeded") >= 1 && r.count(t, "kernosis_controller_diagnoses", "phase", "Failed") >= 1
	})
}

// events returns the Events on a Diagnosis, sorted by time.
func (b *bench) events(d *v1alpha1.Diagnosis) []string {
	b.t.Helper()
	var list eventsv1.EventList
	if err := b.client.List(context.Background(), &list, client.InNamespace(d.Namespace)); err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for len(list.Items) > 0 {
		first := 0
		for i := range list.Items {
			if list.Items[i].EventTime.Before(&list.Items[first].EventTime) {
				first = i
			}
		}
		if e := list.Items[first]; e.Regarding.UID == d.UID {
			out = append(out, e.Type+" "+e.Reason+" "+e.Note)
		}
		list.Items = append(list.Items[:first], list.Items[first+1:]...)
	}
	return out
}
