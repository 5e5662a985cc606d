package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Each mode makes the probe fail in the corresponding way, according to kubelet's message, and
// often enough that kubelet restarts the container, which is then healthy again.
func TestEachModeFailsItsProbe(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n := machine.Node(t)
	n.Image(t, fault.Image, testenv.BuildProgram(t, fault.Program))
	ns := n.Server().Namespace(t)
	const late = "context deadline exceeded"
	for _, c := range []struct {
		mode fault.Mode
		grpc bool
		says string
		goes bool // kubelet does not restart it
	}{
		{mode: fault.Refused, says: "connection refused"},
		{mode: fault.QueueFull, says: late},
		{mode: fault.NotAccepted, says: late},
		{mode: fault.Silent, says: late},
		{mode: fault.Reset, says: "connection reset by peer"},
		{mode: fault.ResetLate, says: "connection reset by peer", goes: true},
		{mode: fault.Slow, says: late},
		{mode: fault.Status, says: "statuscode: 503"},
		{mode: fault.Status, grpc: true, says: "NOT_SERVING"},
		{mode: fault.TLSGarbage, says: "does not look like a TLS handshake"},
		{mode: fault.ExecFails, says: "not well"},
		{mode: fault.ExecHangs, says: "timed out"},
		{mode: fault.Stopped, says: late},
		{mode: fault.Throttled, says: late},
	} {
		name := string(c.mode)
		if c.grpc {
			name += "-grpc"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := n.Run(t, node.FaultPod(ns, name, c.mode, c.grpc))
			pod = n.Await(t, pod, "ready", time.Minute, node.Ready)
			if got := unhealthy(n.Events(t, pod)); got != "" {
				t.Errorf("unhealthy before it is asked to be: %s", got)
			}
			if err := n.SetMode(t.Context(), pod, c.mode); err != nil {
				t.Fatal(err)
			}
			// On a busy machine a single probe may be late in any mode.
			n.Await(t, pod, "restarted, or known to be unhealthy", time.Minute, func(now *corev1.Pod) bool {
				return now.Status.ContainerStatuses[0].RestartCount > 0 || c.goes && strings.Contains(unhealthy(n.Events(t, pod)), c.says)
			})
			if got := unhealthy(n.Events(t, pod)); !strings.Contains(got, c.says) {
				t.Errorf("kubelet says %q, want %q", got, c.says)
			}
			if now := n.Pod(t, pod); c.goes && now.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("it was restarted")
			}
		})
	}
}

// unhealthy returns kubelet's messages about failed probes.
func unhealthy(events []corev1.Event) string {
	var all []string
	for _, e := range events {
		if e.Reason == "Unhealthy" {
			all = append(all, e.Message)
		}
	}
	return strings.Join(all, "\n")
}
