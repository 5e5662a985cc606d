package nodetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/deploy/chart"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// ofKubelet is a cluster in which agents have the chart's role for pods from kubelet.
type ofKubelet struct {
	people client.Client // has all rights
	own    *kubernetes.Clientset
	flags  []string // flags of an agent
}

// installOfKubelet creates the chart's objects for an agent that gets the pods from kubelet.
func installOfKubelet(t *testing.T, n *node.Node) *ofKubelet {
	t.Helper()
	server := n.Server()
	server.CRDs(t)
	people := apitest.Client(t, server.Admin())
	c := &ofKubelet{people: people}
	if err := people.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chart.Namespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	documents, err := chart.Renderer{Helm: kubetest.Helm(t), Chart: "../../../deploy/chart/kernosis"}.Render(t.Context(), map[string]any{
		"agent": map[string]any{"config": map[string]any{"pods-from": "kubelet"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	for _, d := range documents {
		o, err := d.Object()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case o.GetKind() == "ConfigMap" && o.GetName() == "kernosis-agent":
			text, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case d.Source != "agent-rbac.yaml":
		default:
			if err := people.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership); err != nil {
				t.Fatal(err)
			}
		}
	}
	shown := server.Token(t, kubetest.TokenFor{Namespace: chart.Namespace, ServiceAccount: "kernosis-agent"})
	access := server.WithToken(shown)
	if c.own, err = kubernetes.NewForConfig(access); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(shown), 0o600); err != nil {
		t.Fatal(err)
	}
	c.flags = []string{
		"--config", config, "--kubeconfig", server.Kubeconfig(t, access), "--namespace", chart.Namespace,
		"--kubelet-url", n.KubeletURL(), "--kubelet-ca", n.KubeletCA(), "--kubelet-token-file", token,
	}
	return c
}

// readsNoPods checks that an agent can't read pods at the API server, neither its node's nor one by
// name.
func (c *ofKubelet) readsNoPods(t *testing.T, of *corev1.Pod) {
	t.Helper()
	ofNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", of.Spec.NodeName).String()}
	_, list := c.own.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), ofNode)
	_, watch := c.own.CoreV1().Pods(metav1.NamespaceAll).Watch(t.Context(), ofNode)
	_, inNamespace := c.own.CoreV1().Pods(of.Namespace).List(t.Context(), metav1.ListOptions{})
	_, get := c.own.CoreV1().Pods(of.Namespace).Get(t.Context(), of.Name, metav1.GetOptions{})
	_, proxy := c.own.CoreV1().RESTClient().Get().Resource("nodes").Name(of.Spec.NodeName).SubResource("proxy").Suffix("pods").DoRaw(t.Context())
	for what, err := range map[string]error{"list": list, "watch": watch, "list of a namespace": inNamespace, "get": get, "kubelet by the API server": proxy} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// ended waits for the end of the Diagnosis that ok accepts.
func (c *ofKubelet) ended(t *testing.T, what string, ok func(*v1alpha1.Diagnosis) bool) *v1alpha1.Diagnosis {
	t.Helper()
	var found *v1alpha1.Diagnosis
	testenv.UntilShown(t, "end of "+what, time.Minute, func() (bool, string) {
		var all v1alpha1.DiagnosisList
		if err := c.people.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var seen strings.Builder
		for i := range all.Items {
			d := &all.Items[i]
			fmt.Fprintf(&seen, "%s/%s %s %+v\n", d.Namespace, d.Name, d.Status.Phase, d.Status.Conditions)
			if ok(d) && (d.Status.Phase == v1alpha1.PhaseSucceeded || d.Status.Phase == v1alpha1.PhaseFailed) {
				found = d
			}
		}
		return found != nil, seen.String()
	})
	return found
}

// values returns the results of an operation of a Diagnosis.
func values(d *v1alpha1.Diagnosis, operation string) map[string]string {
	for i := range d.Status.Results {
		if r := &d.Status.Results[i]; r.Operation == operation {
			return r.Values
		}
	}
	return nil
}

// With pods from kubelet an agent has no right to read pods at the API server, but works as with
// that right: a new pod is found with its name, labels and namespace.
func TestPodsFromKubelet(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n := machine.Node(t)
	c := installOfKubelet(t, n)
	a := newAgent(t, c.flags...)
	tenant, system := a.namespace, chart.Namespace
	of := func(o client.Object) {
		t.Helper()
		if err := c.people.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.people.Delete(context.WithoutCancel(t.Context()), o); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
	detail := []v1alpha1.Node{{ID: 0, To: []int32{1}}, {ID: 1, Operation: "own-pod-detail", To: []int32{2}}, {ID: 2, Operation: "own-container-detail"}}
	for _, name := range []string{"pod-detail", "container-detail"} {
		of(&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: "own-" + name}, Spec: v1alpha1.OperationSpec{
			TenantSafe: true, Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: name}},
		}})
	}
	of(&v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "of-a-pod"}, Spec: v1alpha1.OperationSetSpec{AdjacencyList: detail}})
	of(&v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "of-team-db"}, Spec: v1alpha1.TriggerSpec{OperationSet: "of-a-pod", SourceTemplate: v1alpha1.SourceTemplate{
		ProblemTemplate: &v1alpha1.ProblemTemplate{Rules: []string{"oom-kill"}, Namespaces: []string{tenant}, PodSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"team": "db"}}},
	}}})
	a.Start()
	a.WaitSources(0)
	testenv.Until(t, "kubelet's pods are known", 30*time.Second, func() bool {
		return a.metrics(t).Sum("kernosis_pod_source_reads_total", "source", "kubelet") > 0
	})

	// The kill comes before the agent's next regular poll of kubelet.
	pod := node.FaultPod(tenant, "leaks", fault.None, false)
	pod.Labels["team"] = "db"
	main := &pod.Spec.Containers[0]
	main.LivenessProbe, main.Command = nil, fault.EatCommand()
	main.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod = n.Create(t, pod)
	var reported corev1.Event
	testenv.UntilShown(t, "Event on the pod", 30*time.Second, func() (bool, string) {
		i := slices.IndexFunc(a.reported(t, pod), func(e corev1.Event) bool { return e.Reason == "OOMKilling" })
		if i >= 0 {
			reported = a.reported(t, pod)[i]
		}
		return i >= 0, n.Describe(t, pod)
	})
	if o := reported.InvolvedObject; o.Name != "leaks" || o.Namespace != tenant || o.UID != pod.UID || !strings.Contains(reported.Message, "limit of 48") {
		t.Errorf("%+v: %s", o, reported.Message)
	}
	d := c.ended(t, "the Trigger's Diagnosis", func(d *v1alpha1.Diagnosis) bool {
		return d.Labels[v1alpha1.LabelTrigger] == "of-team-db" && d.Spec.PodReference != nil && d.Spec.PodReference.Namespace == tenant
	})
	if d.Spec.PodReference.Name != "leaks" || d.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%+v %+v", d.Spec, d.Status)
	}
	if v := values(d, "own-pod-detail"); v["podName"] != "leaks" || v["podUID"] != string(pod.UID) || !strings.Contains(v["labels"], "team=db") {
		t.Errorf("%v", v)
	}
	if v := values(d, "own-container-detail"); v["container"] != "main" || v["image"] != fault.Image || v["limits"] != "memory=48Mi" {
		t.Errorf("%v", v)
	}

	// A tenant's Diagnosis of its own pod, and of a pod that does not exist.
	diagnosis := func(name, of string) *v1alpha1.Diagnosis {
		return &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: v1alpha1.DiagnosisSpec{
			OperationSet: "of-a-pod", NodeName: n.Name, PodReference: &v1alpha1.PodReference{Name: of},
		}}
	}
	of(diagnosis("my-pod", "leaks"))
	mine := c.ended(t, "a tenant's Diagnosis", func(d *v1alpha1.Diagnosis) bool { return d.Namespace == tenant && d.Name == "my-pod" })
	if v := values(mine, "own-pod-detail"); mine.Status.Phase != v1alpha1.PhaseSucceeded || v["podName"] != "leaks" || v["podUID"] != string(pod.UID) {
		t.Errorf("%+v", mine.Status)
	}
	byName := diagnosis("by-name", "leaks")
	byName.Namespace, byName.Spec.PodReference.Namespace = system, tenant
	of(byName)
	if d := c.ended(t, "a Diagnosis by a pod's name", func(d *v1alpha1.Diagnosis) bool { return d.Name == "by-name" }); d.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%+v", d.Status)
	}

	// A failing probe: the agent reads kubelet's counters and Events.
	probed := node.FaultPod(tenant, "answers-503", fault.Status, false)
	probed.Spec.Containers[0].LivenessProbe.PeriodSeconds = 10 // the interval at which kubelet's counters are read
	probed = n.Run(t, probed)
	a.has(t, probed, fault.Status)
	testenv.UntilShown(t, "Event on the pod whose probe fails", 60*time.Second, func() (bool, string) {
		return slices.ContainsFunc(a.reported(t, probed), func(e corev1.Event) bool {
			return e.Reason == "ProbeBadStatus" && strings.Contains(e.Message, "503") && e.InvolvedObject.Name == "answers-503"
		}), n.Describe(t, probed)
	})
	c.readsNoPods(t, pod)
	a.Stop()
}
