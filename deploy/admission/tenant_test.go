package admission_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/tenancy"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// tenantCluster has an administrator's objects for tenants, a tenant who may edit a namespace with
// a pod, and another tenant's pod on the same node.
type tenantCluster struct {
	server     *kubetest.Server
	ns, node   string
	own, other *corev1.Pod
	tenant     client.Client
	agent      client.Client
	control    client.Client
	reader     *pods.Reader
}

func newTenantCluster(t *testing.T) *tenantCluster {
	t.Helper()
	server := installedServer(t)
	c := &tenantCluster{server: server, ns: server.Namespace(t), node: server.Node(t)}
	c.own, c.other = server.Pod(t, c.ns, "web-0", c.node), server.Pod(t, server.Namespace(t), "vault-0", c.node)
	admin, name := apitest.Client(t, server.Admin()), "tenant-"+rand.String(6)
	people := kubetest.Manifests(t, "ClusterRole")
	apply(t, admin, slices.DeleteFunc(people, func(o *unstructured.Unstructured) bool {
		return o.GetName() != "kernosis-view" && o.GetName() != "kernosis-edit"
	})...)
	for _, role := range []string{"edit", "kernosis-view", "kernosis-edit"} {
		grant(t, server, user(name), c.ns, role)
	}
	c.tenant = apitest.Client(t, server.Config(t, name))
	c.agent = bound(t, server, c.node)
	account := func(of kubetest.TokenFor) *rest.Config { return server.WithToken(server.Token(t, of)) }
	c.control = apitest.Client(t, account(kubetest.TokenFor{Namespace: system, ServiceAccount: controller}))
	c.reader = &pods.Reader{Client: kubetest.Clientset(t, account(kubetest.TokenFor{Namespace: system, ServiceAccount: agent})), Node: c.node}
	for _, o := range []client.Object{
		&v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "my-pod"}, Spec: v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{
			{ID: 0, To: []int32{1}}, {ID: 1, Operation: "tenant-pod", To: []int32{2}}, {ID: 2, Operation: "tenant-container", Dependences: []int32{1}},
		}}},
		&v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "whole-node"}, Spec: v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{
			{ID: 0, To: []int32{1}}, {ID: 1, Operation: "tenant-pod", To: []int32{2}}, {ID: 2, Operation: "pod-list"},
		}}},
		builtin("tenant-pod", "pod-detail"), builtin("tenant-container", "container-detail"),
	} {
		if err := admin.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return c
}

// builtin returns an Operation that is marked as safe for tenants.
func builtin(name, of string) *v1alpha1.Operation {
	return &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.OperationSpec{
		TenantSafe: true, Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: of}},
	}}
}

// run performs the steps of controller and agent for a tenant's Diagnosis, each with its own token,
// and returns the Diagnosis as the tenant then sees it.
func (c *tenantCluster) run(t *testing.T, d *v1alpha1.Diagnosis) *v1alpha1.Diagnosis {
	t.Helper()
	must(t, c.tenant, d)
	key := client.ObjectKeyFromObject(d)
	if err := c.control.Patch(t.Context(), d, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"nodeName":"`+c.node+`"}}`))); err != nil {
		t.Fatal(err)
	}
	if err := c.agent.Get(t.Context(), key, d); err != nil {
		t.Fatal(err)
	}
	var set v1alpha1.OperationSet
	var operations v1alpha1.OperationList
	if err := c.agent.Get(t.Context(), client.ObjectKey{Name: d.Spec.OperationSet}, &set); err != nil {
		t.Fatal(err)
	}
	if err := c.agent.List(t.Context(), &operations); err != nil {
		t.Fatal(err)
	}
	config := resolve.Config{Builtins: catalog.All(operation.Host{Pods: c.reader}), Operation: func(name string) *v1alpha1.Operation {
		for i := range operations.Items {
			if operations.Items[i].Name == name {
				return &operations.Items[i]
			}
		}
		return nil
	}}
	found, err := c.reader.Pod(t.Context(), d.Namespace, d.Spec.PodReference.Name)
	if err != nil {
		t.Fatal(err)
	}
	complete := metav1.Condition{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now())}
	var plan *resolve.Plan
	var parameters map[string]string
	pod, err := tenancy.PodOf(found, d.Spec.PodReference)
	if err == nil {
		parameters, err = tenancy.Resolve(config, &set, d, pod)
	}
	if err == nil {
		plan, err = tenancy.Plan(config, &set, d, parameters)
	}
	if err != nil {
		d.Status.Phase, complete.Reason, complete.Message = v1alpha1.PhaseFailed, v1alpha1.ReasonNotAllowed, err.Error()
	} else {
		r, err := runner.New(runner.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		report, err := r.Execute(t.Context(), &runner.Diagnosis{ID: string(d.UID), Graph: plan.Graph, Steps: plan.Steps, Parameters: parameters})
		if err != nil {
			t.Fatal(err)
		}
		report.Status(&d.Status)
		complete.Reason, complete.Message = report.Reason, report.Message
	}
	d.Status.Conditions = []metav1.Condition{complete}
	if err := c.agent.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := c.tenant.Get(t.Context(), key, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A user of a namespace learns of its own pod, and in no way of another pod on the same node.
func TestATenantLearnsOfItsOwnPodAlone(t *testing.T) {
	c := newTenantCluster(t)
	diagnosis := func(set string, parameters map[string]string) *v1alpha1.Diagnosis {
		d := podDiagnosis(c.ns)
		d.Spec.OperationSet, d.Spec.Parameters = set, parameters
		return d
	}
	d := c.run(t, diagnosis("my-pod", nil))
	if d.Status.Phase != v1alpha1.PhaseSucceeded || len(d.Status.Results) != 2 {
		t.Fatalf("%+v", d.Status)
	}
	for _, r := range d.Status.Results {
		if r.Values["podUID"] != string(c.own.UID) || r.Values["podName"] != "web-0" {
			t.Errorf("%v", r.Values)
		}
	}
	for name, value := range map[string]string{
		"podUID": string(c.other.UID), "podName": "vault-0", "podNamespace": c.other.Namespace, "pid": "1", "cgroup": "/", "netns": "1", "address": "10.0.0.1", "node": "elsewhere",
	} {
		d := c.run(t, diagnosis("my-pod", map[string]string{name: value}))
		if m := d.Status.Conditions[0]; d.Status.Phase != v1alpha1.PhaseFailed || m.Reason != v1alpha1.ReasonNotAllowed || !strings.Contains(m.Message, "parameter "+name) || len(d.Status.Results) > 0 {
			t.Errorf("%s=%s: %+v", name, value, d.Status)
		}
	}
	d = c.run(t, diagnosis("whole-node", nil))
	if m := d.Status.Conditions[0]; m.Reason != v1alpha1.ReasonNotAllowed || !strings.Contains(m.Message, "operation pod-list has no Operation with tenantSafe: true") || len(d.Status.Results) > 0 {
		t.Errorf("%+v", d.Status)
	}
	// A pod that claims to be the mirror of a static pod can claim any UID for its cgroups.
	forged := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.ns, Name: "mirror-0", Finalizers: []string{"example.com/keep"}, // otherwise kubelet deletes it
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: string(c.other.UID)},
		},
		Spec: corev1.PodSpec{NodeName: c.node, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	must(t, apitest.Client(t, c.server.Admin()), forged) // the role "edit" allows this in a cluster with controllers
	attack := diagnosis("my-pod", nil)
	attack.Spec.PodReference.Name = forged.Name
	d = c.run(t, attack)
	if m := d.Status.Conditions[0]; m.Reason != v1alpha1.ReasonNotAllowed || !strings.Contains(m.Message, "static pod") || len(d.Status.Results) > 0 {
		t.Errorf("%+v", d.Status)
	}
	// A tenant can't mark an Operation as safe either.
	if err := c.tenant.Create(t.Context(), builtin("mine", "pod-list")); err == nil {
		t.Error("a tenant created an Operation")
	}
}
