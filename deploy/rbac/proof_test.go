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
	"github.com/kernosis/kernosis/reporter/kubetest"
)

const system = chart.Namespace

// install makes what the chart has for values, hooks too, but what would run, and waits
// until the policies are in force.
func install(t *testing.T, server *kubetest.Server, values map[string]any) {
	t.Helper()
	server.CRDs(t)
	admin := clientOf(t, server.Admin())
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

// podToken returns the token that a pod of a service account has, on a node.
func podToken(t *testing.T, server *kubetest.Server, account, node string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account + "-" + rand.String(6)},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
		},
	}
	if err := clientOf(t, server.Admin()).Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: account, Pod: pod.Name})
}

// Each program can do what the documentation lists, and nothing else: every verb on every
// resource that the API server has, in every namespace.
func TestProgramsCanDoWhatIsListedAndNothingElse(t *testing.T) {
	server := cluster.Server(t)
	node := server.Node(t)
	controller := documented(t, "../../docs/controller.md", "kernosis-controller")
	uninstall := documented(t, "../../docs/uninstall.md", "kernosis-uninstall")
	secrets := list{inNamespace: documentedSecrets("inventory-client")}
	for _, step := range []struct {
		name    string
		values  map[string]any
		account map[string]list
	}{
		// One behind the other: roles only grow.
		{"default", nil, map[string]list{
			"kernosis-agent":      agents(t),
			"kernosis-controller": controller,
			"kernosis-crds":       documented(t, "../../docs/uninstall.md", "kernosis-crds-apply"),
			"kernosis-uninstall":  uninstall,
		}},
		{"full", full(t), map[string]list{
			"kernosis-agent":       agents(t).and(secrets),
			"kernosis-controller":  controller.and(documented(t, "../../docs/controller.md", "kernosis-controller-repairs")),
			"kernosis-uninstall":   uninstall,
			"kernosis-crds-delete": documented(t, "../../docs/uninstall.md", "kernosis-crds-delete"),
		}},
	} {
		install(t, server, step.values)
		for _, account := range slices.Sorted(maps.Keys(step.account)) {
			t.Run(step.name+"/"+account, func(t *testing.T) {
				newInspector(t, server, podToken(t, server, account, node), system).canDo(t, server, step.account[account])
			})
		}
	}
}
