package admission_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/controller/repair"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// repairs performs repairs with the controller's token.
type repairs struct {
	*testing.T
	actions *repair.Actions
	node    string
}

func newRepairs(t *testing.T, server *kubetest.Server, node string) *repairs {
	t.Helper()
	api := kubetest.Clientset(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	actions, err := repair.NewActions(api, repair.Config{Namespace: system})
	if err != nil {
		t.Fatal(err)
	}
	return &repairs{t, actions, node}
}

// try performs a repair if its check allows it, and requires it to succeed then. Otherwise it
// returns the check's reason.
func (r *repairs) try(builtin string, given map[string]string) (refusal string) {
	r.Helper()
	b, ok := operation.Lookup(catalog.All(operation.Host{}), builtin)
	if !ok {
		r.Fatalf("there is no %s", builtin)
	}
	values, err := b.Fill(given)
	if err != nil {
		r.Fatal(err)
	}
	c := &repair.Call{Builtin: builtin, Values: values, Began: time.Now(), Diagnosis: &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "d", UID: types.UID(builtin), CreationTimestamp: metav1.NewTime(time.Now().Add(2 * time.Second))},
		Spec:       v1alpha1.DiagnosisSpec{NodeName: r.node},
	}}
	err = r.actions.Check(r.Context(), c)
	if refused, ok := errors.AsType[*repair.Refused](err); ok {
		return refused.Why
	}
	if err != nil {
		r.Fatal(err)
	}
	p, err := r.actions.Do(r.Context(), c)
	if err != nil || p.State != v1alpha1.ResultSucceeded && p.State != v1alpha1.ResultRunning {
		r.Errorf("%s %v: passed the check, but ended as %s: %s %v", builtin, given, p.State, p.Message, err)
	}
	return ""
}

// Pods of others in Kernosis' namespace can't be deleted. The check says so before anything is
// changed.
func TestRepairsOfPodsInTheNamespaceOfKernosis(t *testing.T) {
	server := installedServer(t)
	node, ns := server.Node(t), server.Namespace(t)
	server.Pod(t, ns, "web", node)
	dns := system + "/" + server.Pod(t, system, "dns-"+node, node).Name
	r := newRepairs(t, server, node)
	for _, builtin := range []string{"evict-pod", "delete-pod", "drain"} {
		given := map[string]string{"podNamespace": system, "podName": "dns-" + node}
		if builtin == "drain" {
			given = map[string]string{"force": "true"}
		}
		if why := r.try(builtin, given); !strings.Contains(why, dns) || !strings.Contains(why, "namespace of its own") {
			t.Errorf("%s is not refused for its namespace: %q", builtin, why)
		}
	}
	n, err := server.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil || n.Spec.Unschedulable {
		t.Errorf("the node was cordoned: %v", err)
	}
}

// Each taint effect that the built-in accepts can be set.
func TestEachEffectOfATaint(t *testing.T) {
	server := installedServer(t)
	r := newRepairs(t, server, server.Node(t))
	b, _ := operation.Lookup(catalog.All(operation.Host{}), "taint")
	tried := 0
	for i := range b.Parameters {
		if b.Parameters[i].Name != "effect" {
			continue
		}
		for _, effect := range b.Parameters[i].Values {
			if why := r.try("taint", map[string]string{"key": "kernosis.io/" + strings.ToLower(effect), "effect": effect}); why != "" {
				t.Errorf("%s: %s", effect, why)
			}
			tried++
		}
	}
	if tried < 2 {
		t.Errorf("%d effects", tried)
	}
	if _, err := b.Fill(map[string]string{"effect": "NoExecute"}); err == nil || !strings.Contains(err.Error(), "NoSchedule") {
		t.Errorf("the message does not say what to write instead of NoExecute: %v", err)
	}
}
