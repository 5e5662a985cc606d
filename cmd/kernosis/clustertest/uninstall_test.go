package clustertest_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The command stops a reporting agent, and restores the Node to its previous state.
func TestUninstallCommand(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	a := newAgent(t, server)
	objects := server.Client()
	before := a.conditions(objects)
	labels := map[string]string{"app.kubernetes.io/name": "kernosis", "app.kubernetes.io/component": "agent"}
	containers := []corev1.Container{{Name: "agent", Image: "kubetest.invalid/none:1"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: a.namespace, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: a.node, AutomountServiceAccountToken: new(bool), Containers: containers},
	}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kernosis-agent", Namespace: a.namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers}},
		},
	}
	if _, err := objects.CoreV1().Pods(a.namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.AppsV1().DaemonSets(a.namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.Start()
	a.await("conditions of the agent and its Lease", time.Minute, func(ctx context.Context) (bool, string, error) {
		now := a.conditions(objects)
		_, err := objects.CoordinationV1().Leases(a.namespace).Get(ctx, lease.Name(a.node), metav1.GetOptions{})
		return strings.Contains(now, "KernosisDegraded=False"), now, err
	})

	// As kubelet ends the pod, the agent ends first.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, err := objects.AppsV1().DaemonSets(a.namespace).Get(t.Context(), set.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || t.Context().Err() != nil {
				break
			}
			time.Sleep(20 * time.Millisecond) // between polls of the API server
		}
		a.Stop()
		server.DeletePod(t, a.namespace, pod.Name)
	}()
	user := "uninstall-" + a.namespace
	for _, r := range kubetest.Roles(t, "../../../docs/uninstall.md") {
		if r.Name == "kernosis-uninstall" {
			server.Grant(t, user, a.namespace, r)
		}
	}
	path := server.Kubeconfig(t, server.Config(t, user))
	code, out := a.command("uninstall", "--kubeconfig", path, "--namespace", a.namespace)
	<-ended
	if code != 0 || !strings.Contains(out, "DaemonSet kernosis-agent is deleted, 1 pods have stopped") || !strings.Contains(out, "KernosisDegraded") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if now := a.conditions(objects); now != before {
		t.Errorf("the Node has %s, before it had %s", now, before)
	}
	if _, err := objects.CoordinationV1().Leases(a.namespace).Get(t.Context(), lease.Name(a.node), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("lease: %v", err)
	}

	// Without the rights for the CRDs the command says so, and does the rest.
	if code, out := a.command("uninstall", "--kubeconfig", path, "--namespace", a.namespace, "--crds", "--timeout", "20s"); code != 1 ||
		!strings.Contains(out, "diagnoses.kernosis.io") || !strings.Contains(out, "forbidden") || !strings.Contains(out, "DaemonSet kernosis-agent was not found") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := a.command("crds", "delete", "--kubeconfig", path); code != 2 || !strings.Contains(out, "--yes") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := a.command("crds", "apply", "--kubeconfig", server.Kubeconfig(t, server.Admin())); code != 0 || strings.Count(out, "is applied and established") != 5 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// conditions returns the types and statuses of the Node's conditions.
func (a *agent) conditions(api kubernetes.Interface) string {
	a.t.Helper()
	n, err := api.CoreV1().Nodes().Get(a.t.Context(), a.node, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	var out []string
	for _, c := range n.Status.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status))
	}
	return strings.Join(out, " ")
}

// command runs a command of the agent's program to its end.
func (a *agent) command(args ...string) (code int, out string) {
	a.t.Helper()
	var text bytes.Buffer
	cmd := exec.CommandContext(a.t.Context(), a.path, args...)
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			a.t.Fatal(err)
		}
	}
	return cmd.ProcessState.ExitCode(), text.String()
}
