package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

const (
	// runFor is how long a pod may take to start; on two idle cores it takes a second or two.
	runFor = time.Minute
	// goFor is how long a pod may take to be deleted.
	goFor = 30 * time.Second
)

// Run creates a pod on the node and returns it when all its containers run, which does not mean
// that they are ready ([Ready]). Unless the pod says otherwise, its grace period is one second and
// it has no token. It is deleted at the end of the test.
func (n *Node) Run(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	return n.Await(tb, n.Create(tb, pod), "that it runs", runFor, running)
}

// Create creates a pod for this node and deletes it at the end of the test.
func (n *Node) Create(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	pod = pod.DeepCopy()
	pod.Spec.NodeName = n.Name
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		second := int64(1)
		pod.Spec.TerminationGracePeriodSeconds = &second
	}
	if pod.Spec.AutomountServiceAccountToken == nil {
		pod.Spec.AutomountServiceAccountToken = new(bool)
	}
	made, err := n.server.Client().CoreV1().Pods(pod.Namespace).Create(tb.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Delete(tb, made) })
	return made
}

func running(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].State.Running == nil {
			return false
		}
	}
	return pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}

// Ready reports whether all containers of a pod are ready according to kubelet.
func Ready(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if !pod.Status.ContainerStatuses[i].Ready {
			return false
		}
	}
	return running(pod)
}

// Pod returns the current state of a pod from the API server.
func (n *Node) Pod(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	now, err := n.server.Client().CoreV1().Pods(pod.Namespace).Get(tb.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// Await waits until ok returns true for the pod's state in the API server, and returns that state.
// It fails the test at the timeout, with a description of the pod.
func (n *Node) Await(tb testing.TB, pod *corev1.Pod, what string, within time.Duration, ok func(*corev1.Pod) bool) *corev1.Pod {
	tb.Helper()
	within = testenv.Within(within)
	deadline, again := time.After(within), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		pod = n.Pod(tb, pod)
		if ok(pod) {
			return pod
		}
		select {
		case <-again.C:
		case <-deadline:
			tb.Fatalf("pod %s: not %s within %s:\n%s", pod.Name, what, within, n.Describe(tb, pod))
		}
	}
}

// Events returns the Events of a pod from all writers.
func (n *Node) Events(tb testing.TB, pod *corev1.Pod) []corev1.Event {
	tb.Helper()
	list, err := n.server.Client().CoreV1().Events(pod.Namespace).List(tb.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(pod.UID),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return list.Items
}

// Describe returns a description of a pod for failing tests: its status and its Events.
func (n *Node) Describe(tb testing.TB, pod *corev1.Pod) string {
	tb.Helper()
	text, err := json.MarshalIndent(n.Pod(tb, pod).Status, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range n.Events(tb, pod) {
		text = fmt.Appendf(text, "\n%s %s from %s, %d times since %s: %s", e.Type, e.Reason, e.Source.Component, e.Count, e.FirstTimestamp.Format(time.TimeOnly), e.Message)
	}
	return string(text)
}

// Processes returns the PIDs of the processes in a pod's container, as seen on the machine.
func (n *Node) Processes(tb testing.TB, pod *corev1.Pod, container string) []int {
	tb.Helper()
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		tb.Fatalf("pod %s has no container %s", pod.Name, container)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[i].ContainerID, "://")
	all, err := n.groups.processes(id)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Delete deletes a pod and returns when it is gone.
func (n *Node) Delete(tb testing.TB, pod *corev1.Pod) {
	tb.Helper()
	// At the end of the test its context is already cancelled.
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Within(goFor))
	defer cancel()
	pods := n.server.Client().CoreV1().Pods(pod.Namespace)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	for err == nil {
		select {
		case <-again.C:
			_, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		case <-ctx.Done():
			err = errors.New("it is not gone")
		}
	}
	if !apierrors.IsNotFound(err) {
		tb.Errorf("delete pod %s: %v", pod.Name, err)
	}
}
