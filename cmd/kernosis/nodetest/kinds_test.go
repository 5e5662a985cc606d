package nodetest_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Probes of the other kinds: a readiness probe restarts nothing, keeps failing, and recovers; a
// startup probe ends the container, and nothing is reported for the probes that wait for it.
func TestReadinessAndStart(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n := machine.Node(t)
	a := newAgent(t, kubeletFlags(t, n)...)
	a.Start()
	a.WaitSources(0)

	unready := node.FaultPod(a.namespace, "unready", fault.Refused, false)
	main := &unready.Spec.Containers[0]
	main.ReadinessProbe, main.LivenessProbe = main.LivenessProbe, nil
	unready = n.Run(t, unready)
	n.Await(t, unready, "ready", 30*time.Second, node.Ready)

	// Nothing listens there: it never starts.
	starting := node.FaultPod(a.namespace, "starting", fault.None, false)
	main = &starting.Spec.Containers[0]
	main.StartupProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(fault.PortOther)},
	}}
	starting = n.Run(t, starting)

	a.has(t, unready, fault.Refused)
	t.Run("startup", func(t *testing.T) {
		n.Await(t, starting, "restarted", 60*time.Second, func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
		killed := a.killed(t, starting)
		testenv.UntilShown(t, "failures of the start", 30*time.Second, func() (bool, string) {
			return len(probes(a, starting)) >= 3, strconv.Itoa(len(probes(a, starting)))
		})
		for i, e := range probes(a, starting) {
			if p := e.Probe; p.Probe != "startup" || p.Verdict != event.VerdictRefused || p.Threshold != 3 || i < 3 && p.Failures != uint32(i+1) {
				t.Errorf("failure %d: %+v", i+1, p)
			}
		}
		a.says(t, starting, "ProbeTargetRefused", "startup ", killed)
	})
	t.Run("readiness", func(t *testing.T) {
		not := n.Await(t, unready, "not ready", 30*time.Second, func(p *corev1.Pod) bool { return !node.Ready(p) })
		a.says(t, unready, "ProbeTargetRefused", "readiness ", since(not, corev1.PodReady))
		testenv.UntilShown(t, "failures beyond the threshold", 30*time.Second, func() (bool, string) {
			return len(probes(a, unready)) > 4, strconv.Itoa(len(probes(a, unready)))
		})
		for i, e := range probes(a, unready) {
			if p := e.Probe; p.Probe != "readiness" || p.Verdict != event.VerdictRefused || p.Failures != uint32(i+1) {
				t.Errorf("failure %d: %+v", i+1, p)
			}
		}
		a.has(t, unready, fault.None)
		testenv.UntilShown(t, "end of its failures", 30*time.Second, func() (bool, string) {
			all := agenttest.Events(a.Entries(), event.ProbeRecovered)
			return slices.ContainsFunc(all, func(e *event.Event) bool { return e.Probe.Pod == unready.Name && !e.Probe.Over }), strconv.Itoa(len(all))
		})
		if now := n.Await(t, unready, "ready again", 30*time.Second, node.Ready); now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("restarted %d times", now.Status.ContainerStatuses[0].RestartCount)
		}
	})
	a.Stop()
}

// says checks that there is an Event on a pod, not after a time that kubelet gives in whole
// seconds.
func (a *agent) says(t *testing.T, pod *corev1.Pod, reason, words string, before time.Time) {
	t.Helper()
	reported := a.reported(t, pod)
	for _, e := range reported {
		t.Logf("%s ×%d: %s", e.Reason, e.Count, e.Message)
		if e.Reason == reason && strings.Contains(e.Message, words) && !e.CreationTimestamp.After(before) {
			return
		}
	}
	t.Errorf("no Event %s with %q before %s: %+v", reason, words, before, reported)
}

// since returns when a condition of a pod changed.
func since(p *corev1.Pod, of corev1.PodConditionType) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
