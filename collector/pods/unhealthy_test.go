package pods_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Events as kubelet writes them, for this pod and for others, from the API server.
func TestUnhealthy(t *testing.T) {
	server := cluster.Server(t)
	node, ns := server.Node(t), server.Namespace(t)
	pod, other := server.Pod(t, ns, "web-0", node), server.Pod(t, ns, "web-1", node)
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	write := func(name string, of *corev1.Pod, path, reason, message string, ago time.Duration) {
		t.Helper()
		last := metav1.NewTime(at.Add(-ago))
		_, err := server.Client().CoreV1().Events(ns).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: of.Name, UID: of.UID, APIVersion: "v1", FieldPath: path},
			Reason:         reason, Message: message, Type: corev1.EventTypeWarning,
			FirstTimestamp: last, LastTimestamp: last, Count: 3, Source: corev1.EventSource{Component: "kubelet"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	const refused = `Liveness probe failed: Get "http://10.0.0.7:8080/": dial tcp 10.0.0.7:8080: connect: connection refused`
	write("a", pod, "spec.containers{app}", "Unhealthy", refused, time.Minute)
	write("b", pod, "spec.initContainers{side}", "Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 503", 0)
	write("c", pod, "spec.containers{app}", "BackOff", "Liveness probe failed: not this", 0)
	write("d", other, "spec.containers{app}", "Unhealthy", refused, 0)
	write("e", pod, "spec.containers{app}", "Unhealthy", "Something else failed", 0)
	write("f", pod, "", "Unhealthy", refused, 0)

	l := &pods.Events{Client: server.Client()}
	// The server's cache may be a moment behind.
	testenv.UntilShown(t, "2 events", 30*time.Second, func() (bool, string) {
		list, err := l.Unhealthy(t.Context(), ns, string(pod.UID))
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 2 {
			if list[0].Kind != probe.Startup || list[0].Container != "side" || list[0].Count != 3 || !list[0].At.Equal(at.Time) {
				t.Errorf("%+v", list[0])
			}
			if list[1].Kind != probe.Liveness || list[1].Container != "app" || list[1].Message != refused || list[1].PodUID != string(pod.UID) {
				t.Errorf("%+v", list[1])
			}
			return true, ""
		}
		var got []string
		for i := range list {
			got = append(got, list[i].Message)
		}
		return false, fmt.Sprintf("%d events: %q", len(list), got)
	})
}

// Without permission, the error says what could not be done.
func TestUnhealthyIsForbidden(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &pods.Events{Client: cluster.Server(t).Client()}
	if _, err := l.Unhealthy(ctx, "default", "u"); err == nil {
		t.Error("no error")
	}
}
