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

	"github.com/kernosis/kernosis/vmtest/await"
)

const (
	// runFor is how long a pod may take to run; alone on two cores it is a second or two.
	runFor = time.Minute
	// goFor is how long one may take to be gone.
	goFor = 30 * time.Second
)

// Run makes a pod on the node and returns it once all its containers run; whether they
// are ready is another matter ([Ready]). A second is the time it has to end in, and it
// has no token, unless the pod says otherwise. It is deleted when the test ends.
func (n *Node) Run(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	return n.Await(tb, n.Create(tb, pod), "that it runs", runFor, running)
}

// Create makes a pod for this node, and deletes it at the end of the test.
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

// Ready reports whether all containers of a pod are ready, as kubelet has reported.
func Ready(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if !pod.Status.ContainerStatuses[i].Ready {
			return false
		}
	}
	return running(pod)
}

// Pod returns a pod as the API server has it now.
func (n *Node) Pod(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	now, err := n.server.Client().CoreV1().Pods(pod.Namespace).Get(tb.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// Await waits until something holds for a pod as the API server has it, and returns that.
// Where it does not within the time, the test fails with what is known of the pod.
func (n *Node) Await(tb testing.TB, pod *corev1.Pod, what string, within time.Duration, ok func(*corev1.Pod) bool) *corev1.Pod {
	tb.Helper()
	within = await.Within(within)
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

// Events returns those that are on a pod, all writers' together.
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

// Describe returns what failing tests show of a pod: its status and its Events.
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

// Processes returns the processes of a pod's container, by the machine's numbers.
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
	// The test's own context has ended where this is its end.
	ctx, cancel := context.WithTimeout(context.Background(), await.Within(goFor))
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
