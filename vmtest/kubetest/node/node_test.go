package node_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var machine node.Shared

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	testenv.HoldKernelForProcess()
	// Parallel pods that fail mostly wait for kubelet, however few CPUs there are.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(machine.Run(m))
}

func TestPodsRun(t *testing.T) {
	begin := time.Now()
	n := machine.Node(t)
	t.Logf("ready after %s", time.Since(begin))
	n.Image(t, fault.Image, testenv.BuildProgram(t, fault.Program))
	begin = time.Now()
	pod := n.Run(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Server().Namespace(t), Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: fault.Image}}},
	})
	t.Logf("runs after %s at %s", time.Since(begin), pod.Status.PodIP)
	// A container is running shortly before its program listens.
	testenv.UntilShown(t, "the pod answers", 10*time.Second, func() (bool, string) {
		got, err := n.Get(t.Context(), fmt.Sprintf("http://%s:%d/", pod.Status.PodIP, fault.Port), "")
		return err == nil && string(got) == "ok\n", fmt.Sprintf("%q, %v", got, err)
	})
	if pods := string(n.Kubelet(t, "/pods")); !strings.Contains(pods, string(pod.UID)) {
		t.Errorf("kubelet does not know the pod: %.300s", pods)
	}
	if route := n.Command(t, "ip", "route"); !strings.Contains(route, "dev cni0") {
		t.Errorf("routes of the node:\n%s", route)
	}
	n.RestartKubelet(t)
	if now := n.Pod(t, pod); now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container was started anew with kubelet: %+v", now.Status)
	}
	begin = time.Now()
	n.Delete(t, pod)
	t.Logf("gone after %s", time.Since(begin))
}
