package repair

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// actionBench is a namespace with a node, for the repairs alone.
type actionBench struct {
	*testing.T
	server  *kubetest.Server
	api     *kubernetes.Clientset
	actions *Actions
	system  string // the system's namespace
	shop    string // another
	name    string // of the node
	now     time.Time
}

func newActionBench(t *testing.T) *actionBench {
	t.Helper()
	b := &actionBench{T: t, server: cluster.Server(t), now: time.Now()}
	b.api, b.system, b.shop, b.name = b.server.Client(), b.server.Namespace(t), b.server.Namespace(t), b.server.Node(t)
	b.actionsOf(b.api)
	return b
}

// through makes the actions use another connection.
func (b *actionBench) through(to *rest.Config) {
	b.Helper()
	api, err := kubernetes.NewForConfig(to)
	if err != nil {
		b.Fatal(err)
	}
	b.actionsOf(api)
}

func (b *actionBench) actionsOf(api kubernetes.Interface) {
	b.Helper()
	var err error
	if b.actions, err = NewActions(api, Config{Namespace: b.system, Now: func() time.Time { return b.now }}); err != nil {
		b.Fatal(err)
	}
}

// call returns a repair of the bench's node by a new Diagnosis.
func (b *actionBench) call(builtin, uid string, given map[string]string) *Call {
	b.Helper()
	blueprint, ok := operation.Lookup(catalog.All(operation.Host{}), builtin)
	if !ok || !blueprint.ByController {
		b.Fatalf("%s is not the controller's", builtin)
	}
	values, err := blueprint.Fill(given)
	if err != nil {
		b.Fatal(err)
	}
	return &Call{Builtin: builtin, Values: values, Began: b.now, Diagnosis: &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: b.system, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(b.now.Add(2 * time.Second))},
		Spec:       v1alpha1.DiagnosisSpec{NodeName: b.name},
	}}
}

// does makes a pass and checks its outcome, and that its results are declared.
func (b *actionBench) does(c *Call, state v1alpha1.ResultState, message string) Progress {
	b.Helper()
	p, err := b.actions.Do(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	if p.State != state || !strings.Contains(p.Message, message) {
		b.Fatalf("%s: %+v, want %s: %s", c.Builtin, p, state, message)
	}
	blueprint, _ := operation.Lookup(catalog.All(operation.Host{}), c.Builtin)
	for key := range p.Values {
		declared := false
		for _, r := range blueprint.Results {
			declared = declared || r.Name == key
		}
		if !declared {
			b.Errorf("%s: result %s is not declared", c.Builtin, key)
		}
	}
	return p
}

// again returns the call for the pass after one that returned p.
func again(c *Call, p Progress) *Call {
	out := *c
	out.Before = &v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning, Message: p.Message, Values: p.Values}
	return &out
}

// refuses checks that a repair is refused and changes nothing.
func (b *actionBench) refuses(c *Call, why string) {
	b.Helper()
	err := b.actions.Check(b.Context(), c)
	if refused, ok := errors.AsType[*Refused](err); !ok || !strings.Contains(refused.Why, why) {
		b.Errorf("%s: %v, want a refusal: %s", c.Builtin, err, why)
	}
}

func (b *actionBench) allows(c *Call) {
	b.Helper()
	if err := b.actions.Check(b.Context(), c); err != nil {
		b.Error(err)
	}
}

func (b *actionBench) node() *corev1.Node {
	b.Helper()
	n, err := b.api.CoreV1().Nodes().Get(b.Context(), b.name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *actionBench) patch(body string) {
	b.Helper()
	if _, err := b.api.CoreV1().Nodes().Patch(b.Context(), b.name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
}

// pod creates a pod of a ReplicaSet on the node.
func (b *actionBench) pod(namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	b.Helper()
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: b.name, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
		},
	}
	if change != nil {
		change(p)
	}
	p, err := b.api.CoreV1().Pods(namespace).Create(b.Context(), p, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		now := int64(0)
		_ = b.api.CoreV1().Pods(namespace).Delete(context.WithoutCancel(b.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	// Kubelet's part. Without it the pod would end at once, because it never ran.
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if p, err = b.api.CoreV1().Pods(namespace).UpdateStatus(b.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	if p.Spec.NodeName != b.name {
		return p
	}
	b.cached(name+" is there", func(names []string) bool { return slices.Contains(names, namespace+"/"+name) })
	return p
}

// gone simulates kubelet's part of a pod's end.
func (b *actionBench) gone(namespace, name string) {
	b.Helper()
	b.server.DeletePod(b.T, namespace, name)
	b.cached(name+" is gone", func(names []string) bool { return !slices.Contains(names, namespace+"/"+name) })
}

// cached waits until the API server's cache, which may lag by some milliseconds, shows the test's
// changes to the node's pods.
func (b *actionBench) cached(what string, ok func(names []string) bool) {
	b.Helper()
	testenv.Until(b.T, "the API server's cache shows that "+what, time.Minute, func() bool {
		list, err := b.api.CoreV1().Pods("").List(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + b.name, ResourceVersion: "0"})
		if err != nil {
			b.Fatal(err)
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
		return ok(names)
	})
}

// ending reports whether a pod's deletion was requested.
func (b *actionBench) ending(namespace, name string) bool {
	b.Helper()
	p, err := b.api.CoreV1().Pods(namespace).Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return p.DeletionTimestamp != nil
}

// budget creates a PodDisruptionBudget that allows no eviction of an app's pods.
func (b *actionBench) budget(app string) {
	b.Helper()
	all := intstr.FromString("100%")
	pdb, err := b.api.PolicyV1().PodDisruptionBudgets(b.shop).Create(b.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	// The disruption controller's part.
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	if _, err := b.api.PolicyV1().PodDisruptionBudgets(b.shop).UpdateStatus(b.Context(), pdb, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}
