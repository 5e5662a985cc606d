package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller"
	"github.com/kernosis/kernosis/reporter/kube/leader"
	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// elected returns an election that is not lost while the API server stalls. An orderly shutdown
// releases the lease.
func elected(identity string) leader.Election {
	return leader.Election{Enabled: true, Identity: identity, Lease: time.Minute, Renew: 50 * time.Second, Retry: 250 * time.Millisecond}
}

// Only one of two controllers works, and the other continues when it ends.
func TestSecondControllerTakesOver(t *testing.T) {
	b := newBench(t)
	leads := func() string {
		l, err := b.server.Client().CoordinationV1().Leases(b.namespace).Get(context.Background(), leader.ElectionName, metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	first := b.controlAs(how{election: elected("first")})
	b.waitFor("the first leads", func() bool { return leads() == "first" })
	second := b.controlAs(how{election: elected("second")})
	name := b.server.Node(t)
	b.agent(name)
	label := b.name("pool")
	b.nodes(label, 3)
	d, parent := b.dx(v1alpha1.DiagnosisSpec{NodeName: name}), b.dx(v1alpha1.DiagnosisSpec{OperationSet: b.set(), TargetSelector: selectNodes(label, 0)})
	b.waitIs(d, "Pending")
	b.waitFor("they are made", func() bool { return targets(b.get(parent)).Created == 3 })
	if n := second.count(t, "kernosis_controller_diagnoses"); n != 0 {
		t.Errorf("the second tells of %v Diagnoses", n)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range b.children(parent) {
		b.write(&c, finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now()))
	}
	b.waitFor("the second leads", func() bool { return leads() == "second" })
	b.waitIs(parent, "Succeeded True "+v1alpha1.ReasonTargetsSucceeded)
	b.waitIs(b.dx(v1alpha1.DiagnosisSpec{NodeName: "no-such-node"}), "Failed True "+v1alpha1.ReasonNodeNotFound)
	if is(b.get(d)) != "Pending" {
		t.Errorf("it is %s", is(b.get(d)))
	}
}

// grant gives the service account "controller" those rights of the controller that are allowed.
func (b *bench) grant(allowed func(rbacv1.PolicyRule) bool) {
	b.t.Helper()
	for _, role := range kubetest.ControllerRoles(b.t, "../..") {
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return !allowed(r) })
		b.server.Grant(b.t, "system:serviceaccount:"+b.namespace+":controller", b.namespace, role)
	}
}

// If the kinds of diagnoses are not installed, that is reported once and the rest works. Once they
// are, everything works with exactly the documented rights.
func TestKindsThatComeLaterAndRightsThatSuffice(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := kubetest.New(t, kubetest.Options{Flags: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"}})
	b := benchOn(t, server)
	server.ServiceAccount(t, b.namespace, "controller", kubetest.ControllerRoles(t, "../..")...)
	log := &testenv.LogBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	name := server.Node(t)
	r := b.controlAs(how{
		to:       server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: b.namespace, ServiceAccount: "controller"})),
		election: elected("it"),
		change: func(c *controller.Config) {
			quick(c)
			c.Log = slog.New(slog.NewTextHandler(log, nil))
		},
	})
	b.waitFor("it is reported", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.missing) > 0
	})
	b.waitFor("liveness goes on", b.silentAgentIsSpokenFor(name))
	r.mu.Lock()
	slices.Sort(r.missing)
	if want := []string{"Diagnosis", "Operation", "OperationSet", "RemediationPolicy", "Trigger"}; !slices.Equal(r.missing, want) {
		t.Errorf("missing %v, want each once", r.missing)
	}
	r.mu.Unlock()

	server.CRDs(t)
	set := b.set()
	b.waitSet(set, "True "+v1alpha1.ReasonAccepted)
	b.agent(name)
	trigger := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: v1alpha1.TriggerSpec{
		OperationSet: set, NodeName: name, SourceTemplate: v1alpha1.SourceTemplate{CronTemplate: &v1alpha1.CronTemplate{Schedule: "0 2 * * *"}},
	}}
	b.create(trigger)
	b.waitFor("the trigger is accepted", func() bool {
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(trigger), trigger); err != nil {
			t.Fatal(err)
		}
		is, _ := accepted(trigger.Status.Conditions)
		return is == "True Accepted"
	})
	web := map[string]string{"app": "web"}
	b.running(b.podIn(b.namespace, "web", name, web))
	d := b.dx(about("web"))
	b.waitFor("it is placed", func() bool { return b.get(d).Spec.NodeName == name })
	parent := b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, TargetSelector: &v1alpha1.TargetSelector{PodSelector: &v1alpha1.LabelSelector{MatchLabels: web}}})
	b.waitFor("they are made", func() bool { return targets(b.get(parent)).Created == 1 })
	for _, c := range b.children(parent) {
		b.write(&c, finish(v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, time.Now()))
	}
	b.waitIs(parent, "Succeeded True "+v1alpha1.ReasonTargetsSucceeded)
	cancelled := b.dx(v1alpha1.DiagnosisSpec{OperationSet: set, TargetSelector: &v1alpha1.TargetSelector{NodeNames: []string{name}}})
	b.waitFor("they are made", func() bool { return targets(b.get(cancelled)).Created == 1 })
	b.waitFor("it is cancelled", func() bool {
		have := b.get(cancelled)
		have.Spec.Cancel = true
		return b.client.Update(t.Context(), have) == nil
	})
	b.waitFor("what it has is cancelled", func() bool { return b.children(cancelled)[0].Spec.Cancel })
	b.waitIs(b.dx(v1alpha1.DiagnosisSpec{NodeName: "no-such-node"}), "Failed True "+v1alpha1.ReasonNodeNotFound)
	tenant := server.Namespace(t)
	refused := b.newDx(v1alpha1.DiagnosisSpec{NodeName: name})
	refused.Namespace = tenant
	b.create(refused)
	b.waitIs(refused, "Failed True "+v1alpha1.ReasonNotAllowed)
	b.waitFor("the refusal is reported", func() bool { return len(b.events(refused)) == 1 })
	b.waitIs(b.old(time.Hour, time.Minute), "gone")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "forbidden") {
		t.Error("a right is missing")
	}
}

// A controller that lacks the rights for diagnoses, as after an upgrade, still reports for silent
// agents.
func TestRightsThatAreMissing(t *testing.T) {
	testenv.OnlyInTestAll(t)
	b := newBench(t)
	b.server.ServiceAccount(t, b.namespace, "controller")
	b.grant(func(r rbacv1.PolicyRule) bool { return !slices.Contains(r.APIGroups, v1alpha1.Group) })
	log := &testenv.LogBuffer{}
	b.controlAs(how{
		to: b.server.WithToken(b.server.Token(t, kubetest.TokenFor{Namespace: b.namespace, ServiceAccount: "controller"})),
		change: func(c *controller.Config) {
			quick(c)
			c.Log = slog.New(slog.NewTextHandler(log, nil))
		},
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	b.waitFor("liveness works", b.silentAgentIsSpokenFor(b.server.Node(t)))
	if n := strings.Count(log.String(), "can't list a kind"); n != 5 {
		t.Errorf("it is reported %d times that rights are missing, want once a kind", n)
	}
	b.grant(func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, v1alpha1.Group) })
	b.waitIs(b.dx(v1alpha1.DiagnosisSpec{NodeName: "no-such-node"}), "Failed True "+v1alpha1.ReasonNodeNotFound)
}

// silentAgentIsSpokenFor simulates an agent with a condition that falls silent.
func (b *bench) silentAgentIsSpokenFor(node string) func() bool {
	b.t.Helper()
	api, err := kubernetes.NewForConfig(b.server.Admin())
	if err != nil {
		b.t.Fatal(err)
	}
	k, err := lease.New(lease.Config{
		Client: api, Namespace: b.namespace, Node: node, Interval: 200 * time.Millisecond, Duration: time.Second, StartJitter: -1, DrainTimeout: time.Nanosecond,
		Types: func() []string { return []string{"A"} },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = k.Run(ctx) })
	b.waitFor("the agent reports", func() bool { return !k.Stats().LastRenewed.IsZero() })
	cancel()
	ended.Wait()
	return func() bool {
		n := &corev1.Node{}
		if err := b.client.Get(context.Background(), client.ObjectKey{Name: node}, n); err != nil {
			b.t.Fatal(err)
		}
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == "A" && c.Status == corev1.ConditionUnknown
		})
	}
}
