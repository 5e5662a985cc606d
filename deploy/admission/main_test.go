package admission_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The names used in the policies.
const (
	system     = "kernosis"
	agent      = "kernosis-agent"
	controller = "kernosis-controller"
)

var (
	cluster   = kubetest.Shared{Own: true} // the policies apply to all users of a cluster
	installed sync.Once
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// installedServer returns the server with the CRDs and the policies in effect.
func installedServer(t *testing.T) *kubetest.Server {
	t.Helper()
	server := cluster.Server(t)
	server.CRDs(t)
	installed.Do(func() {
		if _, err := server.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		admin := apitest.Client(t, server.Admin())
		for _, account := range []string{agent, controller} {
			server.ServiceAccount(t, system, account)
			// They may do everything, so that any denial comes from the policies.
			grant(t, server, rbacv1.Subject{Kind: "ServiceAccount", Namespace: system, Name: account}, "", "cluster-admin")
		}
		server.ServiceAccount(t, system, "default") // no pods can be created without it
		policies := kubetest.Manifests(t, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
		reserve(t, policies)
		apply(t, admin, policies...)
		inForce(t, server)
	})
	return server
}

// reserved is a condition type that the policies deny to agents and the controller, like those in
// the chart's value admission.reservedConditions.
const reserved = "OfAnother"

func reserve(t *testing.T, policies []*unstructured.Unstructured) {
	t.Helper()
	for _, p := range policies {
		variables, _, err := unstructured.NestedSlice(p.Object, "spec", "variables")
		for _, v := range variables {
			if v := v.(map[string]any); v["name"] == "reserved" {
				v["expression"] = strings.Replace(v["expression"].(string), "]", `,"`+reserved+`"]`, 1)
			}
		}
		if err == nil && variables != nil {
			err = unstructured.SetNestedSlice(p.Object, variables, "spec", "variables")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// apply creates all objects that do not exist yet.
func apply(t *testing.T, c client.Client, objects ...*unstructured.Unstructured) {
	t.Helper()
	if len(objects) == 0 {
		t.Fatal("no manifests")
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// grant binds a user to a ClusterRole, in a namespace or in all.
func grant(t *testing.T, server *kubetest.Server, to rbacv1.Subject, namespace, role string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "test-" + rand.String(8), Namespace: namespace}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	var o client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{to}}
	if namespace != "" {
		o = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{to}}
	}
	must(t, apitest.Client(t, server.Admin()), o)
	server.AwaitRole(t, to, namespace, role)
}

// inForce waits until each policy denies what it should: the API server learns of policies through
// watches.
func inForce(t *testing.T, server *kubetest.Server) {
	t.Helper()
	unbound := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: agent})))
	admin, node := apitest.Client(t, server.Admin()), server.Node(t)
	somebody := server.Config(t, "somebody")
	grant(t, server, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "somebody"}, system, "admin")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-writer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"diagnoses"}, Verbs: []string{"get", "list", "create", "update", "patch", "delete"}},
	}}
	if err := admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	grant(t, server, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "somebody"}, system, role.Name)
	controllers := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	for what, try := range map[string]func() error{
		"kernosis-controller-nodes": func() error {
			return controllers.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.DryRunAll)
		},
		"kernosis-controller-pods": func() error {
			return controllers.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "none"}, Spec: corev1.PodSpec{
				AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
			}}, client.DryRunAll)
		},
		"kernosis-approval": func() error {
			d := nodeDiagnosis("n1")
			d.Spec.Approval = &v1alpha1.Approval{PlanDigest: digest}
			return apitest.Client(t, somebody).Create(t.Context(), d, client.DryRunAll)
		},
		"kernosis-agent-diagnoses": func() error { return unbound.Create(t.Context(), nodeDiagnosis("n1"), client.DryRunAll) },
		"kernosis-tenants": func() error {
			d := nodeDiagnosis("n1")
			d.Namespace = "default"
			return admin.Create(t.Context(), d, client.DryRunAll)
		},
		"kernosis-agent-leases": func() error { return unbound.Create(t.Context(), leaseOf("n1"), client.DryRunAll) },
		"kernosis-agent-nodes": func() error {
			return unbound.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(client.Merge.Type(), []byte(`{}`)), client.DryRunAll)
		},
	} {
		testenv.UntilShown(t, what+" is in force", 30*time.Second, func() (bool, string) {
			err := try()
			return err != nil && strings.Contains(err.Error(), what), fmt.Sprint(err)
		})
	}
}

// bound returns a client with the token of a node's agent.
func bound(t *testing.T, server *kubetest.Server, node string) client.Client {
	t.Helper()
	return apitest.Client(t, boundConfig(t, server, node))
}

// boundConfig returns the configuration of a client with the token of an agent's pod.
func boundConfig(t *testing.T, server *kubetest.Server, node string) *rest.Config {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "agent-" + rand.String(8)},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: agent, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
		},
	}
	if err := apitest.Client(t, server.Admin()).Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: agent, Pod: pod.Name}))
}

const digest v1alpha1.Digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// nodeDiagnosis returns a Diagnosis of a node, in the system's namespace.
func nodeDiagnosis(node string) *v1alpha1.Diagnosis {
	return &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "dx-" + rand.String(8)},
		Spec:       v1alpha1.DiagnosisSpec{OperationSet: "hung-task", NodeName: node},
	}
}

// podDiagnosis returns a Diagnosis of a pod, in the pod's namespace.
func podDiagnosis(namespace string) *v1alpha1.Diagnosis {
	return &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dx-" + rand.String(8)},
		Spec:       v1alpha1.DiagnosisSpec{OperationSet: "why", PodReference: &v1alpha1.PodReference{Name: "web-0"}},
	}
}

// outcome checks the result of a request: want is a part of the error, or empty for success.
func outcome(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// must creates an object.
func must(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(context.WithoutCancel(t.Context()), o); err != nil {
		t.Fatal(err)
	}
}
