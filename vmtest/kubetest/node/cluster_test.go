package node_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// With controllers the node belongs to a normal cluster: a DaemonSet has a pod on it, which has a
// token and reaches the API server; kubectl logs and exec work.
func TestAClusterWithControllers(t *testing.T) {
	testenv.OnlyInTestAll(t)
	node.Need(t)
	server := kubetest.New(t, kubetest.Options{Controllers: true})
	n, err := node.Start(t.Context(), server, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	kubectl := kubetest.Kubectl(t)
	// kubectl runs in a pod, as a program that talks to the API server.
	const image = "local.test/kubectl:1"
	n.Image(t, image, kubectl)
	n.Image(t, fault.Image, testenv.BuildProgram(t, fault.Program))
	ns := server.Namespace(t)
	labels := map[string]string{"app": "set"}
	_, err = server.Client().AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					InitContainers: []corev1.Container{{Name: "ask", Image: image, Args: []string{"auth", "whoami"}}},
					Containers:     []corev1.Container{{Name: "main", Image: fault.Image}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	testenv.Until(t, "a pod of the DaemonSet", time.Minute, func() bool {
		list, err := server.Client().CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 1 {
			pod = &list.Items[0]
		}
		return pod != nil
	})
	pod = n.Await(t, pod, "ready", time.Minute, node.Ready)
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", server.Kubeconfig(t, server.Admin()), "-n", ns}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if said := run("logs", pod.Name, "-c", "ask"); !strings.Contains(said, "system:serviceaccount:"+ns+":default") || !strings.Contains(said, n.Name) {
		t.Errorf("the pod says of itself: %s", said)
	}
	if said := run("exec", pod.Name, "-c", "main", "--", "/probepod", "probe"); said != "" {
		t.Errorf("exec: %s", said)
	}
	if len(n.Processes(t, pod, "main")) != 2 {
		t.Errorf("processes of the container: %v", n.Processes(t, pod, "main"))
	}
}
