package nodetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// If a child process of a container is killed, the container continues and kubelet has nothing to
// report; the agent's Event on the pod does. If it happens repeatedly, the node's condition does too.
func TestAKilledChildIsReportedOnItsPod(t *testing.T) {
	a := newAgent(t)
	a.Start()
	a.WaitSources(0)
	pod := a.node.Run(t, node.FaultPod(a.namespace, "leaks", fault.ChildKilled, false))
	spared := a.node.Run(t, node.FaultPod(a.namespace, "spared", fault.None, false))

	// awaits waits until that many kills are reported, and returns the latest Event.
	awaits := func(kills int) (last corev1.Event) {
		t.Helper()
		testenv.UntilShown(t, fmt.Sprintf("Event of kill %d", kills), 30*time.Second, func() (bool, string) {
			n := 0
			for _, e := range a.reported(t, pod) {
				if e.Reason == "OOMKilling" {
					last = e
					n += int(e.Count)
				}
			}
			if n > kills {
				t.Fatalf("%d of %d are reported", n, kills)
			}
			return n == kills, a.node.Describe(t, pod)
		})
		return last
	}
	since := a.has(t, pod, fault.ChildKilled)
	reported := awaits(1)
	t.Logf("reported after %s: %s", time.Since(since).Round(time.Millisecond), reported.Message)
	if !strings.HasPrefix(reported.Message, "probepod[") || !strings.Contains(reported.Message, "limit of 48") {
		t.Errorf("message %q", reported.Message)
	}
	for range 4 {
		a.has(t, pod, fault.ChildKilled)
	}
	awaits(5)

	testenv.UntilShown(t, "condition", 30*time.Second, func() (bool, string) {
		n, err := a.node.Server().Client().CoreV1().Nodes().Get(t.Context(), a.node.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "FrequentOOMKilling" {
				return c.Status == corev1.ConditionTrue, fmt.Sprintf("%+v", c)
			}
		}
		return false, fmt.Sprintf("%+v", n.Status.Conditions)
	})
	// The condition may include more kills: all kills on the machine are the node's.
	ofIt := func(p *problem.Problem) bool { return p.Pod == string(pod.UID) }
	if states := agenttest.States(a.Entries(), "oom-kill-frequent", ofIt); !slices.Contains(states, problem.Firing) {
		t.Errorf("states of the pod's own problem: %v", states)
	}
	if now := a.node.Pod(t, pod); now.Status.ContainerStatuses[0].RestartCount != 0 || !node.Ready(now) {
		t.Errorf("the container did not go on: %+v", now.Status)
	}
	if reported := a.reported(t, spared); len(reported) != 0 {
		t.Errorf("reported for a pod that nothing happened to: %+v", reported)
	}
	if n := a.metrics(t).Sum("kernosis_events_occurred_total", "rule", "oom-kill"); n < 5 {
		t.Errorf("the metrics have %v kills", n)
	}
	a.Stop()
}
