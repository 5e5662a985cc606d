package pods_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	os.Exit(testenv.CheckLeaks(func() int { return cluster.Run(m) }))
}

// A pod from a file gets the defaults that the API server fills in.
func TestDefaultsAreTheAPIServers(t *testing.T) {
	server := cluster.Server(t)
	written := podOf(t, `
metadata: {name: defaults}
spec:
  automountServiceAccountToken: false
  initContainers:
  - name: sidecar
    image: none.invalid/none:1
    restartPolicy: Always
    startupProbe: {httpGet: {port: 8080, path: "healthz?a=b"}}
  containers:
  - name: http
    image: none.invalid/none:1
    ports: [{name: web, containerPort: 8080}]
    livenessProbe: {httpGet: {port: web}}
    readinessProbe: {httpGet: {port: "web", scheme: HTTPS}, successThreshold: 2}
    startupProbe: {exec: {command: ["true"]}, failureThreshold: 30, periodSeconds: 1}
  - name: others
    image: none.invalid/none:1
    livenessProbe: {tcpSocket: {port: 5432}, timeoutSeconds: 5}
    readinessProbe: {grpc: {port: 9090}, initialDelaySeconds: 3}
`)
	written.Namespace = server.Namespace(t)
	written.Spec.NodeName = server.Node(t)
	stored, err := server.Client().CoreV1().Pods(written.Namespace).Create(t.Context(), written, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if stored.Spec.Containers[0].LivenessProbe.PeriodSeconds == written.Spec.Containers[0].LivenessProbe.PeriodSeconds {
		t.Fatal("the API server fills in nothing")
	}
	written.UID = stored.UID
	var both [2]*probe.Pod
	if both[0], err = pods.Convert(written); err != nil {
		t.Fatal(err)
	}
	if both[1], err = pods.Convert(stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(both[1], both[0]); diff != "" || len(both[0].Containers) != 3 {
		t.Errorf("%d containers; API server's -, ours +:\n%s", len(both[0].Containers), diff)
	}
}
