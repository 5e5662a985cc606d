package rbac_test

import (
	"context"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

var cluster = kubetest.Shared{Own: true} // tests install the chart's ClusterRoles

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// apply creates the objects for people and returns the ClusterRoles among them.
func apply(t *testing.T, c client.Client) (roles []unstructured.Unstructured) {
	t.Helper()
	for _, o := range kubetest.Manifests(t, "ClusterRole", "ClusterRoleBinding") {
		if strings.HasPrefix(o.GetName(), "kernosis-agent") || strings.HasPrefix(o.GetName(), "kernosis-controller") {
			continue
		}
		if err := c.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		if o.GetKind() == "ClusterRole" {
			roles = append(roles, *o)
		}
	}
	return roles
}

// become binds a user in a namespace to one of Kubernetes' roles and to the roles aggregated to it,
// because no controller aggregates them here.
func become(t *testing.T, server *kubetest.Server, who, namespace, role string, shipped []unstructured.Unstructured) {
	t.Helper()
	admin := apitest.Client(t, server.Admin())
	names := []string{role}
	for _, r := range shipped {
		if r.GetLabels()["rbac.authorization.k8s.io/aggregate-to-"+role] == "true" {
			names = append(names, r.GetName())
		}
	}
	if len(names) < 2 {
		t.Fatalf("nothing is aggregated to %s", role)
	}
	for _, name := range names {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b-" + rand.String(8)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: who}},
		}
		if err := admin.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		server.AwaitRole(t, b.Subjects[0], namespace, name)
	}
}

func diagnosis(namespace string) *v1alpha1.Diagnosis {
	return &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dx-" + rand.String(8)},
		Spec:       v1alpha1.DiagnosisSpec{OperationSet: "why", PodReference: &v1alpha1.PodReference{Name: "web-0"}},
	}
}

// objects returns one object of each kind that runs on nodes.
func objects() []client.Object {
	meta := metav1.ObjectMeta{Name: "mine-" + rand.String(8)}
	return []client.Object{
		&v1alpha1.Operation{ObjectMeta: meta, Spec: v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "sockets"}}}},
		&v1alpha1.OperationSet{ObjectMeta: meta, Spec: v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "sockets"}}}},
		&v1alpha1.Trigger{ObjectMeta: meta, Spec: v1alpha1.TriggerSpec{OperationSet: "s", NodeName: "n1", SourceTemplate: v1alpha1.SourceTemplate{
			ProblemTemplate: &v1alpha1.ProblemTemplate{Rules: []string{"r"}},
		}}},
		&v1alpha1.RemediationPolicy{ObjectMeta: meta},
	}
}

func TestPeople(t *testing.T) {
	server := cluster.Server(t)
	server.CRDs(t)
	admin := apitest.Client(t, server.Admin())
	shipped := apply(t, admin)
	server.AwaitRole(t, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, "", "kernosis-operationsets")
	own, system := server.Namespace(t), server.Namespace(t)
	people := map[string]client.Client{}
	for _, role := range []string{"view", "edit", "admin"} {
		become(t, server, role+"er", own, role, shipped)
		people[role] = apitest.Client(t, server.Config(t, role+"er"))
	}
	there := diagnosis(own)
	if err := admin.Create(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	set := &v1alpha1.OperationSet{
		ObjectMeta: metav1.ObjectMeta{Name: "why-" + rand.String(6)},
		Spec:       v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "sockets"}}},
	}
	if err := admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	for role, c := range people {
		may := role != "view"
		check := func(what string, err error, allowed bool) {
			t.Helper()
			if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("%s: %s: %v", role, what, err)
			}
		}
		d := diagnosis(own)
		check("make one in its namespace", c.Create(t.Context(), d), may)
		check("end one", c.Patch(t.Context(), there.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"cancel":true}}`))), may)
		if may {
			check("delete one", c.Delete(t.Context(), d), true)
		}
		check("read them", c.List(t.Context(), &v1alpha1.DiagnosisList{}, client.InNamespace(own)), true)
		check("write a status", c.Status().Patch(t.Context(), there.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"status":{"phase":"Failed"}}`))), false)
		check("make one in the system's namespace", c.Create(t.Context(), diagnosis(system)), false)
		check("read those of the system", c.List(t.Context(), &v1alpha1.DiagnosisList{}, client.InNamespace(system)), false)
		check("read OperationSets", c.List(t.Context(), &v1alpha1.OperationSetList{}), true)
		check("read an OperationSet", c.Get(t.Context(), client.ObjectKeyFromObject(set), &v1alpha1.OperationSet{}), true)
		check("read Operations", c.List(t.Context(), &v1alpha1.OperationList{}), false)
		check("change an OperationSet", c.Patch(t.Context(), set.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"a":"b"}}}`))), false)
		check("delete an OperationSet", c.Delete(t.Context(), set.DeepCopy()), false)
		for _, o := range objects() {
			check("make "+o.GetObjectKind().GroupVersionKind().Kind, c.Create(t.Context(), o), false)
		}
		if allowed(t, c, own, "approve") || allowed(t, c, system, "approve") {
			t.Errorf("%s may approve", role)
		}
	}
}

// allowed reports whether a user may perform a verb on Diagnoses.
func allowed(t *testing.T, c client.Client, namespace, verb string) bool {
	t.Helper()
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: v1alpha1.Group, Resource: "diagnoses",
	}}}
	if err := c.Create(context.WithoutCancel(t.Context()), r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Allowed
}

// Administrators and approvers get their rights by named roles.
func TestAdministratorsAndApprovers(t *testing.T) {
	server := cluster.Server(t)
	server.CRDs(t)
	admin, namespace := apitest.Client(t, server.Admin()), server.Namespace(t)
	apply(t, admin)
	for who, role := range map[string]string{"operator": "kernosis-admin", "approver": "kernosis-approver"} {
		b := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b-" + rand.String(8)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: who}},
		}
		if err := admin.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		server.AwaitRole(t, b.Subjects[0], "", role)
		c := apitest.Client(t, server.Config(t, who))
		if !allowed(t, c, namespace, "approve") || allowed(t, c, namespace, "create") != (who == "operator") {
			t.Errorf("%s: may it create: %v", who, allowed(t, c, namespace, "create"))
		}
		for _, o := range objects() {
			if err := c.Create(t.Context(), o); (err == nil) != (who == "operator") {
				t.Errorf("%s: %T: %v", who, o, err)
			}
		}
	}
}
