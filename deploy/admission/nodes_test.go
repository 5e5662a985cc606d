package admission_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestAgentsNodes(t *testing.T) {
	server := installedServer(t)
	node, elsewhere := server.Node(t), server.Node(t)
	admin := apitest.Client(t, server.Admin())
	kubelet := func(patch string) {
		t.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if err := admin.Status().Patch(t.Context(), n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	kubelet(`{"status":{"capacity":{"cpu":"4"},"images":[{"names":["a:1"],"sizeBytes":1}],"nodeInfo":{"kernelVersion":"6.12"}}}`)
	own := bound(t, server, node)
	loose := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: agent})))
	patch := func(c client.Client, of, body string, subresource bool) error {
		n, p := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: of}}, client.RawPatch(types.StrategicMergePatchType, []byte(body))
		if subresource {
			return c.Status().Patch(t.Context(), n, p)
		}
		return c.Patch(t.Context(), n, p)
	}
	condition := func(kind, status string) string {
		return `{"status":{"conditions":[{"type":"` + kind + `","status":"` + status + `","reason":"R","message":"m"}]}}`
	}
	for _, c := range []struct {
		what, on, body string
		by             client.Client
		want           string
	}{
		{"its condition", node, condition("KernelDeadlock", "True"), own, ""},
		{"a change of it", node, condition("KernelDeadlock", "False"), own, ""},
		{"its removal", node, `{"status":{"conditions":[{"$patch":"delete","type":"KernelDeadlock"}]}}`, own, ""},
		{"by an unbound token", node, condition("KernelDeadlock", "True"), loose, "is not bound to a node"},
		{"another node's", elsewhere, condition("KernelDeadlock", "True"), own, "its own Node, " + node},
		{"Ready", node, condition("Ready", "False"), own, "may not write Ready"},
		{"pressure", node, condition("MemoryPressure", "True"), own, "may not write Ready"},
		{"a new pressure", node, condition("DiskPressure", "True"), own, "may not write Ready"},
		{"the network", node, condition("NetworkUnavailable", "True"), own, "may not write Ready"},
		{"what is reserved", node, condition(reserved, "True"), own, "may not write Ready"},
		{"that Ready is gone", node, `{"status":{"conditions":[{"$patch":"delete","type":"Ready"}]}}`, own, "may not write Ready"},
		{"a label", node, `{"metadata":{"labels":{"a":"b"}}}`, own, "metadata: an agent"},
		{"a label that is there", node, `{"metadata":{"labels":{"kubernetes.io/os":"plan9"}}}`, own, "metadata: an agent"},
		{"an annotation", node, `{"metadata":{"annotations":{"a":"b"}}}`, own, "metadata: an agent"},
		{"a finalizer", node, `{"metadata":{"finalizers":["a/b"]}}`, own, "metadata: an agent"},
		{"an owner", node, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`, own, "metadata: an agent"},
		{"capacity", node, `{"status":{"capacity":{"cpu":"400"}}}`, own, "status: an agent"},
		{"new capacity", node, `{"status":{"capacity":{"example.com/gpu":"4"}}}`, own, "status: an agent"},
		{"allocatable", node, `{"status":{"allocatable":{"cpu":"1"}}}`, own, "status: an agent"},
		{"addresses", node, `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`, own, "status: an agent"},
		{"kernel", node, `{"status":{"nodeInfo":{"kernelVersion":"2.4"}}}`, own, "status: an agent"},
		{"images that are gone", node, `{"status":{"images":null}}`, own, "status: an agent"},
	} {
		outcome(t, c.what, patch(c.by, c.on, c.body, true), c.want)
	}
	for what, body := range map[string]string{
		"taint": `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, "cordon": `{"spec":{"unschedulable":true}}`, "label": `{"metadata":{"labels":{"a":"b"}}}`,
	} {
		outcome(t, what, patch(own, node, body, false), "may only write the status of its Node")
	}
	outcome(t, "its deletion", own.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}), "may only write the status of its Node")
	if err := own.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node + "-2"}}); err == nil || !strings.Contains(err.Error(), "kernosis-agent-nodes") {
		t.Errorf("another node is created: %v", err)
	}
	// kubelet, like everybody else who is not an agent, is not restricted.
	kubelet(`{"metadata":{"labels":{"a":"b"}},"status":{"capacity":{"cpu":"8"},"conditions":[{"type":"Ready","status":"False"}]}}`)
	outcome(t, "behind kubelet's", patch(own, node, condition("KernelDeadlock", "True"), true), "")
}

// A condition that the agent may not write does not keep its other conditions off the Node.
func TestReservedConditionsHoldUpNoOther(t *testing.T) {
	server := installedServer(t)
	node := server.Node(t)
	api := kubetest.Clientset(t, boundConfig(t, server, node))
	p, err := conditions.New(conditions.Config{Client: api, Node: node, Coalesce: 10 * time.Millisecond, StartJitter: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Set([]problem.Condition{
		{Type: reserved, Status: problem.True, Reason: "R", Message: "m"}, {Type: "ReadonlyFilesystem", Status: problem.True, Reason: "R", Message: "m"},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	testenv.UntilShown(t, "the other is on the Node", 30*time.Second, func() (bool, string) {
		n, err := server.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "ReadonlyFilesystem" }), fmt.Sprintf("%+v", p.Stats())
	})
}
