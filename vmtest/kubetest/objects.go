package kubetest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Namespace creates a namespace with a service account "default" and returns its name. It stays
// until the server ends, because without [Options.Controllers] nothing empties namespaces.
func (s *Server) Namespace(tb testing.TB) string {
	tb.Helper()
	ns, err := s.client.CoreV1().Namespaces().Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(tb)}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	// Pods are rejected without it. With controllers, one of them may create it first.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = s.client.CoreV1().ServiceAccounts(ns.Name).Create(tb.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatal(err)
	}
	return ns.Name
}

// ServiceAccount creates a service account and grants it roles ([Server.Grant]).
func (s *Server) ServiceAccount(tb testing.TB, namespace, name string, roles ...rbacv1.ClusterRole) {
	tb.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.client.CoreV1().ServiceAccounts(namespace).Create(tb.Context(), account, metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
	s.Grant(tb, accountUser(namespace, name), namespace, roles...)
}

// accountUser returns a service account's user name.
func accountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// Node creates a ready Node as kubelet would register it, and returns its name.
func (s *Server) Node(tb testing.TB) string {
	tb.Helper()
	node := name(tb)
	s.NodeNamed(tb, node)
	return node
}

// NodeNamed creates a ready Node with the given name, for example again after it was deleted.
func (s *Server) NodeNamed(tb testing.TB, name string) {
	tb.Helper()
	now := metav1.NewTime(time.Now())
	nodes := s.client.CoreV1().Nodes()
	node, err := nodes.Create(tb.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
	}}, metav1.CreateOptions{FieldManager: "kubelet"})
	if err != nil {
		tb.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available", LastHeartbeatTime: now, LastTransitionTime: now},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: now, LastTransitionTime: now},
	}
	// A patch, like kubelet's, because the tested code may write at the same time.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": node.Status.Conditions}})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := nodes.Patch(tb.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubelet"}, "status"); err != nil {
		tb.Fatal(err)
	}
}

// Pod creates a pod that is bound to a node, with the service account "default".
func (s *Server) Pod(tb testing.TB, namespace, name, node string) *corev1.Pod {
	tb.Helper()
	pod, err := s.client.CoreV1().Pods(namespace).Create(tb.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return pod
}

// ProbedPod creates the pod web-1, bound to a node, with the status kubelet would report: its
// container app, which has run for an hour and has the port 80 named web, is probed every second.
func (s *Server) ProbedPod(tb testing.TB, namespace, node, ip string, liveness corev1.ProbeHandler) *corev1.Pod {
	tb.Helper()
	pods := s.client.CoreV1().Pods(namespace)
	pod, err := pods.Create(tb.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1"},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{
				Name: "app", Image: "kubetest.invalid/none:1", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}},
				LivenessProbe: &corev1.Probe{ProbeHandler: liveness, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 30},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	started := true
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + strings.Repeat("8a", 32), Started: &started, Image: "x", ImageID: "x",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}},
	}}
	if pod, err = pods.UpdateStatus(tb.Context(), pod, metav1.UpdateOptions{}); err != nil {
		tb.Fatal(err)
	}
	return pod
}

// DeletePod deletes a pod at once: there is no kubelet that would stop it first.
func (s *Server) DeletePod(tb testing.TB, namespace, name string) {
	tb.Helper()
	now := int64(0)
	err := s.client.CoreV1().Pods(namespace).Delete(tb.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		tb.Fatal(err)
	}
}

// name returns a unique name that contains the name of the test.
func name(tb testing.TB) string {
	tb.Helper()
	n := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(tb.Name()), "-")
	return strings.Trim(n[:min(len(n), 40)], "-") + "-" + rand.String(6)
}
