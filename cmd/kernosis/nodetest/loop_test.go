package nodetest_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A container that is killed again after each restart has another ID each time; the node's condition
// still reports the loop.
func TestACrashLoopIsReportedOnTheNode(t *testing.T) {
	testenv.OnlyInTestAll(t)
	a := newAgent(t)
	a.Start()
	a.WaitSources(0)
	pod := node.FaultPod(a.namespace, "loops", fault.None, false)
	main := &pod.Spec.Containers[0]
	main.LivenessProbe = nil
	main.Command = fault.EatCommand()
	main.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	a.node.Create(t, pod)

	var killed []*event.Event
	a.Wait("five kills", 2*time.Minute, func(entries []journal.Entry) bool {
		killed = nil
		for _, e := range entries {
			if e.Event != nil && e.Event.Kind == event.OOMKill && e.Event.Container != nil && !e.Event.OOMKill.Along {
				killed = append(killed, e.Event)
			}
		}
		return len(killed) >= 5
	})
	ids := map[string]bool{}
	for _, ev := range killed {
		c := *ev.Container
		ids[c.ID] = true
		if have, want := [3]string{c.Name, c.PodName, c.PodNamespace}, [3]string{"main", "loops", a.namespace}; have != want {
			t.Errorf("container %s is %q, want %q", c.ID, have, want)
		}
	}
	if len(ids) < 5 {
		t.Errorf("%d kills in %d containers: kubelet has not restarted it each time", len(killed), len(ids))
	}
	testenv.UntilShown(t, "condition", 30*time.Second, func() (bool, string) {
		n, err := a.node.Server().Client().CoreV1().Nodes().Get(t.Context(), a.node.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "FrequentOOMKilling" {
				return string(c.Status) == string(problem.True) && strings.Contains(c.Message, "repeatedly"), c.Message
			}
		}
		return false, "none"
	})
}
