package kubetest_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// With controllers everything works as in any cluster, even after an outage of the API server: a
// Deployment creates pods, the scheduler assigns them, and pods of a deleted namespace are deleted.
func TestControllers(t *testing.T) {
	testenv.OnlyInTestAll(t)
	begin := time.Now()
	server := kubetest.New(t, kubetest.Options{Controllers: true})
	t.Logf("ready after %s", time.Since(begin).Round(time.Millisecond))
	kubectl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), kubetest.Kubectl(t), append([]string{"--kubeconfig", server.Kubeconfig(t, server.Admin())}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := kubectl("version"); err != nil || strings.Count(out, "v1.") < 2 {
		t.Errorf("kubectl version: %v\n%s", err, out)
	}
	ns := server.Namespace(t)
	server.Kill(t)
	server.Start(t)
	pods, labels, one := server.Client().CoreV1().Pods(ns), map[string]string{"app": "web"}, int32(1)
	_, err := server.Client().AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "pod that the scheduler has looked at", time.Minute, func() bool {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && len(list.Items[0].Status.Conditions) > 0 && list.Items[0].Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	})
	if err := server.Client().CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "end of the namespace", time.Minute, func() bool {
		_, err := server.Client().CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
