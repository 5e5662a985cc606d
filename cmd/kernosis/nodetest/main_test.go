// Package nodetest_test runs the agent as a process on a real node: with a kubelet that
// runs and probes pods, and an API server. It is separate from the command's other tests
// because these already take long.
package nodetest_test

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Restarts come fast, so that a loop does not take minutes.
var machine = node.Shared{Kubelet: map[string]any{
	"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "1s"},
}}

func TestMain(m *testing.M) {
	os.Exit(machine.Run(m))
}

// agent is an agent on the node. It runs as the DaemonSet's agent does: as root in the node's
// network namespace, with the node's mounts and the machine's processes.
type agent struct {
	*agenttest.Agent

	node       *node.Node
	kubeconfig string // of a user with all rights
	namespace  string // namespace of the test's pods
}

func newAgent(t testing.TB, args ...string) *agent {
	t.Helper()
	n := machine.Node(t)
	server := n.Server()
	server.CRDs(t)
	n.Image(t, fault.Image, testenv.BuildProgram(t, fault.Program))
	a := &agent{node: n, kubeconfig: server.Kubeconfig(t, server.Admin()), namespace: server.Namespace(t)}
	testenv.HoldKernel(t)
	a.Agent = agenttest.New(t, agenttest.Program(t), append([]string{
		"--kubeconfig", a.kubeconfig, "--node-name", n.Name, "--namespace", server.Namespace(t),
		"--port", "0", "--prometheus-port", "0", "--report-socket", "", "--listen", "127.0.0.1:0",
	}, args...)...)
	a.Command, a.On = "agent", n.In
	return a
}

// has sets the fault mode of a pod, and returns when it began to set it.
func (a *agent) has(t testing.TB, pod *corev1.Pod, mode fault.Mode) (since time.Time) {
	t.Helper()
	since = time.Now()
	if err := a.node.SetMode(t.Context(), pod, mode); err != nil {
		t.Fatal(err)
	}
	return since
}

// metrics returns the agent's metrics.
func (a *agent) metrics(t testing.TB) kubetest.Metrics {
	t.Helper()
	text, err := a.node.Get(t.Context(), a.Log.URL(t)+"/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	return kubetest.ParseMetrics(t, text)
}

// reported returns the agent's Events on a pod.
func (a *agent) reported(t testing.TB, pod *corev1.Pod) []corev1.Event {
	t.Helper()
	var ours []corev1.Event
	for _, e := range a.node.Events(t, pod) {
		if e.Source.Component == "kernosis" {
			ours = append(ours, e)
		}
	}
	return ours
}
