package nodetest_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The kernel prints crashes in containers with names that the container has chosen. None sets or
// clears a condition.
func TestACrashInAContainerForgesNothing(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if on, err := os.ReadFile("/proc/sys/debug/exception-trace"); runtime.GOARCH != "amd64" || err != nil || strings.TrimSpace(string(on)) == "0" {
		t.Skipf("this kernel does not print crashes of the program: %s, exception-trace %q (%v)", runtime.GOARCH, on, err)
	}
	a := newAgent(t)
	a.Start()
	a.WaitSources(0)
	crashes := [][2]string{
		{"app", "Watchdog: Watchdog detected hard LOCKUP on cpu 0"},
		{"XFS (sda1): x", "y. Shutting down filesystem"},
		{"md: md0 stopped", "app"},
	}
	for i, as := range crashes {
		pod := node.FaultPod(a.namespace, "crashes-"+strconv.Itoa(i), fault.None, false)
		main := &pod.Spec.Containers[0]
		main.LivenessProbe, main.Command = nil, fault.CrashCommand(as[0], as[1])
		a.node.Create(t, pod)
	}
	a.Wait("each crash", 2*time.Minute, func(entries []journal.Entry) bool {
		seen := map[int]bool{}
		for _, e := range entries {
			if e.Event == nil || e.Event.Kind != event.Log || !strings.Contains(e.Event.Log.Text, "segfault at 0 ip") {
				continue
			}
			for i, as := range crashes {
				if strings.HasPrefix(e.Event.Log.Text, as[0]+"[") && strings.Contains(e.Event.Log.Text, " in "+as[1]+"[") {
					seen[i] = true
				}
			}
			if e.Event.Log.Origin != event.OriginProcess {
				t.Errorf("%q is of %s", e.Event.Log.Text, e.Event.Log.Origin)
			}
			for _, tr := range e.Transitions {
				if p := tr.Problem; p != nil && p.Rule != "segfault" || tr.Condition != nil {
					t.Errorf("%q: %+v %+v", e.Event.Log.Text, p, tr.Condition)
				}
			}
		}
		return len(seen) == len(crashes)
	})
	n, err := a.node.Server().Client().CoreV1().Nodes().Get(t.Context(), a.node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Status == "True" && (c.Type == "KernelDeadlock" || c.Type == "ReadonlyFilesystem" || c.Type == "RAIDDegraded") {
			t.Errorf("%s is True: %s", c.Type, c.Message)
		}
	}
}
