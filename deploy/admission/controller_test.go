package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// The policies deny what the controller's rights on nodes and pods would allow beyond repairs.
func TestTheControllersNodesAndPods(t *testing.T) {
	server := installedServer(t)
	node, ns := server.Node(t), server.Namespace(t)
	admin := apitest.Client(t, server.Admin())
	must(t, admin, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "static", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}, Spec: corev1.PodSpec{
		NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
	}})
	own, web, other := server.Pod(t, system, "own-"+node, node), server.Pod(t, ns, "web", node), server.Pod(t, ns, "other", node)
	byAdmin := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]}}`))
	if err := admin.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, byAdmin); err != nil {
		t.Fatal(err)
	}
	c := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	patch := func(body string, status bool) error {
		n, p := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.StrategicMergePatchType, []byte(body))
		if status {
			return c.Status().Patch(t.Context(), n, p)
		}
		return c.Patch(t.Context(), n, p)
	}
	for _, w := range []struct {
		what, body string
		status     bool
		want       string
	}{
		{"a cordon", `{"spec":{"unschedulable":true}}`, false, ""},
		{"and back", `{"spec":{"unschedulable":null}}`, false, ""},
		{"a taint", `{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"},{"key":"kernosis.io/disk","effect":"NoSchedule"}]}}`, false, ""},
		{"and back", `{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]}}`, false, ""},
		{"a taint of Kubernetes", `{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"},{"key":"node.kubernetes.io/out-of-service","effect":"NoSchedule"}]}}`, false, "may not set or remove taints of kubernetes.io"},
		{"another value of one", `{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","value":"x","effect":"NoSchedule"}]}}`, false, "may not set or remove taints of kubernetes.io"},
		{"its removal", `{"spec":{"taints":null}}`, false, "may not set or remove taints of kubernetes.io"},
		{"a taint that ends pods", `{"spec":{"taints":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"},{"key":"a","effect":"NoExecute"}]}}`, false, "NoExecute"},
		{"the provider", `{"spec":{"providerID":"x"}}`, false, "may only cordon and taint"},
		{"a label", `{"metadata":{"labels":{"example.com/broken":"disk"},"annotations":{"kernosis.io/acts":"x"}}}`, false, ""},
		{"the autoscaler", `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}}}`, false, ""},
		{"load balancers", `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}}}`, false, ""},
		{"a role", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, false, "may not set labels and annotations of kubernetes.io"},
		{"the system", `{"metadata":{"labels":{"kubernetes.io/os":"plan9"}}}`, false, "may not set labels and annotations of kubernetes.io"},
		{"a zone", `{"metadata":{"labels":{"topology.k8s.io/zone":"a"}}}`, false, "may not set labels and annotations of kubernetes.io"},
		{"a finalizer", `{"metadata":{"finalizers":["a/b"]}}`, false, "may only set labels and annotations"},
		{"a condition", `{"status":{"conditions":[{"type":"KernelDeadlock","status":"Unknown","reason":"R","message":"m"}]}}`, true, ""},
		{"Ready", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"R","message":"m"}]}}`, true, "status.conditions"},
		{"capacity", `{"status":{"capacity":{"example.com/gpu":"400"}}}`, true, "may only write conditions"},
	} {
		outcome(t, w.what, patch(w.body, w.status), w.want)
	}
	outcome(t, "the Node's deletion", c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}), "may not create or delete Nodes")
	evict := func(p *corev1.Pod) error {
		return c.SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
	}
	outcome(t, "the end of a pod", c.Delete(t.Context(), web), "")
	outcome(t, "its eviction", evict(other), "")
	outcome(t, "the end of a pod of Kernosis", c.Delete(t.Context(), own), "may not delete or evict pods in "+system)
	outcome(t, "its eviction", evict(own), "may not delete or evict pods in "+system)
	outcome(t, "the end of a static pod", c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "static"}}), "may not delete static pods")
	outcome(t, "a pod", c.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "new"}, Spec: own.Spec}), "may not create or change pods")
}
