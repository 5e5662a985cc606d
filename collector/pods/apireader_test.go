package pods_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestReaderHasTheNodesPodsAlone(t *testing.T) {
	server := cluster.Server(t)
	node, other, ns := server.Node(t), server.Node(t), server.Namespace(t)
	server.Pod(t, ns, "here", node)
	server.Pod(t, ns, "there", other)
	server.Pod(t, ns, "nowhere", "")
	r := &pods.Reader{Client: server.Client(), Node: node}
	if p, err := r.Pod(t.Context(), ns, "here"); err != nil || p.Name != "here" || p.Spec.Containers[0].Image == "" {
		t.Errorf("%v %v", p, err)
	}
	for name, want := range map[string]string{"there": "is on node " + other, "nowhere": "is on no node yet", "none": "not found"} {
		if _, err := r.Pod(t.Context(), ns, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The server's cache may be a moment behind.
	testenv.Until(t, "the pod is listed", time.Minute, func() bool {
		list, err := r.All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 1 && list[0].Name == "here"
	})
}

// A server that does not answer blocks the caller only for the timeout.
func TestReaderDoesNotWaitForLong(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, but no process answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + silent.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	r := &pods.Reader{Client: client, Node: "n7"}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := r.All(ctx); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if _, err := r.Pod(ctx, "shop", "web-0"); err == nil {
		t.Error("a pod of nobody")
	}
}

// The built-ins report what the API server has of a pod.
func TestPodBuiltins(t *testing.T) {
	server := cluster.Server(t)
	node, ns := server.Node(t), server.Namespace(t)
	pod := server.Pod(t, ns, "db-0", node)
	ended := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	pod.Status.Phase, pod.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: "10.1.2.3"}}
	pod.Status.PodIP = "10.1.2.3"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", RestartCount: 3, ContainerID: "containerd://" + strings.Repeat("a", 64),
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", ExitCode: 137, StartedAt: ended, FinishedAt: ended,
		}},
	}}
	if _, err := server.Client().CoreV1().Pods(ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &pods.Reader{Client: server.Client(), Node: node}
	all := catalog.All(operation.Host{Pods: r})
	run := func(name string, parameters map[string]string) map[string]string {
		t.Helper()
		b, ok := operation.Lookup(all, name)
		if !ok {
			t.Fatal("no " + name)
		}
		v, err := b.Fill(parameters)
		if err != nil {
			t.Fatal(err)
		}
		out, err := b.Do(t.Context(), &operation.Call{Parameters: v})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return out.Results
	}
	testenv.Until(t, "the cache has the status", time.Minute, func() bool { return run("pod-detail", map[string]string{"podUID": string(pod.UID)})["restarts"] == "3" })
	named := map[string]string{"podNamespace": ns, "podName": "db-0", "podUID": string(pod.UID)}
	if got := run("pod-detail", named); got["conditions"] != "Ready=False ContainersNotReady" || got["containers"] != "main waiting CrashLoopBackOff restarts=3" || got["labels"] != "app=db-0" || got["node"] != node {
		t.Errorf("%v", got)
	}
	if got := run("container-detail", named); got["oomKilled"] != "true" || got["lastExitCode"] != "137" || got["image"] != "kubetest.invalid/none:1" || got["state"] != "waiting CrashLoopBackOff" {
		t.Errorf("%v", got)
	}
	if got := run("pod-list", map[string]string{"affectedPodUIDs": string(pod.UID), "affectedPods": "1"}); got["podNames"] != ns+"/db-0" || got["notReady"] != "1" {
		t.Errorf("%v", got)
	}
}
