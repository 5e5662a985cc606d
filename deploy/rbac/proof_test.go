package rbac_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

const system = chart.Namespace

// install creates the chart's objects for the values, including hooks but no workloads, and waits
// until the policies are in effect.
func install(t *testing.T, server *kubetest.Server, values map[string]any) {
	t.Helper()
	server.CRDs(t)
	admin := apitest.Client(t, server.Admin())
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	documents, err := chart.Renderer{Helm: kubetest.Helm(t), Chart: "../chart/kernosis", Hooks: true}.Render(t.Context(), values)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		o, err := d.Object()
		if err != nil {
			t.Fatal(err)
		}
		if group := o.GroupVersionKind().Group; !slices.Contains([]string{"", "rbac.authorization.k8s.io", "admissionregistration.k8s.io"}, group) {
			continue
		}
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func full(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../chart/kernosis/examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// podToken returns the token of a pod with a service account on a node.
func podToken(t *testing.T, server *kubetest.Server, account, node string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account + "-" + rand.String(6)},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
		},
	}
	if err := apitest.Client(t, server.Admin()).Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: account, Pod: pod.Name})
}

// Each program can do what the documentation lists and nothing else: checked for every verb on
// every resource of the API server, in every namespace.
func TestProgramsCanDoWhatIsListedAndNothingElse(t *testing.T) {
	server := cluster.Server(t)
	node := server.Node(t)
	controller := documented(t, "../kustomize/base/controller-rbac.yaml", "kernosis-controller")
	uninstall := documented(t, "../../docs/uninstall.md", "kernosis-uninstall")
	secrets := list{inNamespace: documentedSecrets("inventory-client")}
	ofAgent := func(config map[string]any) map[string]any {
		return map[string]any{"agent": map[string]any{"config": config}}
	}
	for _, step := range []struct {
		name    string
		values  map[string]any
		account map[string]list
		gone    []act // rights of the agent in the previous step that it no longer has
	}{
		// In sequence: the rights grow, except in the last steps.
		{name: "default", account: map[string]list{
			"kernosis-agent":      agents(t),
			"kernosis-controller": controller,
			"kernosis-crds":       documented(t, "../../docs/uninstall.md", "kernosis-crds-apply"),
			"kernosis-uninstall":  uninstall,
		}},
		{name: "full", values: full(t), account: map[string]list{
			"kernosis-agent":       agents(t).and(secrets),
			"kernosis-controller":  controller.and(documented(t, "../../docs/controller.md", "kernosis-controller-repairs")),
			"kernosis-uninstall":   uninstall,
			"kernosis-crds-delete": documented(t, "../../docs/uninstall.md", "kernosis-crds-delete"),
		}},
		{name: "pods from kubelet", values: ofAgent(map[string]any{"pods-from": "kubelet"}), account: map[string]list{
			"kernosis-agent": agents(t, "pods-from: kubelet"),
		}, gone: []act{{resource: "pods", verb: "list"}, {resource: "secrets", verb: "get", namespace: system, name: "inventory-client"}}},
		{name: "least", values: ofAgent(map[string]any{"pods-from": "kubelet", "kubelet-events": false, "diagnose": false}), account: map[string]list{
			"kernosis-agent": agents(t, "pods-from: kubelet", "kubelet-events: false", "diagnose: false"),
		}, gone: []act{{resource: "events", verb: "list"}, {group: v1alpha1.Group, resource: "diagnoses", verb: "create", namespace: system}}},
	} {
		install(t, server, step.values)
		for _, account := range slices.Sorted(maps.Keys(step.account)) {
			t.Run(step.name+"/"+account, func(t *testing.T) {
				i := newInspector(t, server, podToken(t, server, account, node), system)
				i.awaitGone(t, step.gone)
				i.canDo(t, server, step.account[account])
			})
		}
	}
}
