package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// profile is a security profile of the agent, with its effect on how faults are reported.
type profile struct {
	refused   string // additional text for a refused probe
	queueFull string // reason for a probe that meets a full accept queue
	queueSays string
	queueWhy  string // verdict of its Diagnosis; empty for none
	diskWhy   string // verdict for a failed disk; empty for none

	// over lists the possible statuses of a condition that also depends on the kernel log, when the
	// fault has ended. It is Unknown if the log can't be read, from some seconds after the start.
	over []corev1.ConditionStatus
}

func privileged() profile {
	return profile{
		refused: "container listens on :8081", queueFull: "ProbeTargetAcceptQueueFull",
		queueSays: "accept queue full 2/1 on :8080", queueWhy: "AcceptQueueFull", diskWhy: "DiskFailing",
		over: []corev1.ConditionStatus{corev1.ConditionFalse},
	}
}

// faults tests a fault of each family, all at the same time, each in its own pod.
func (c *cluster) faults(t *testing.T) { c.faultsWith(t, privileged()) }

func (c *cluster) faultsWith(t *testing.T, with profile) {
	t.Run("a child is killed for memory", func(t *testing.T) { c.childKilled(t, with) })
	t.Run("a task hangs", func(t *testing.T) { c.taskHangs(t, with) })
	t.Run("a disk fails", func(t *testing.T) { c.diskFails(t, with) })
	t.Run("a filesystem refuses writes", func(t *testing.T) { c.refusesWrites(t, with) })
	for _, f := range []struct {
		mode    fault.Mode
		reason  string
		says    string
		verdict string // verdict of the Diagnosis; empty if the Trigger has none for it
	}{
		{fault.Refused, "ProbeTargetRefused", with.refused, ""},
		{fault.QueueFull, with.queueFull, with.queueSays, with.queueWhy},
		{fault.Silent, "ProbeTargetSilent", "no byte back in 1s", ""},
		{fault.Slow, "ProbeTargetSlow", "not complete in 1s", ""},
		{fault.Status, "ProbeBadStatus", "503", ""},
	} {
		t.Run("probes: "+string(f.mode), func(t *testing.T) {
			t.Parallel()
			pod := node.FaultPod(c.pods, "probe-"+string(f.mode), f.mode, false)
			if f.mode == fault.Status {
				// kubelet's metrics are scraped every ten seconds.
				pod.Spec.Containers[0].LivenessProbe.PeriodSeconds = 10
			}
			pod = c.Run(t, pod)
			c.reported(t, pod, "", 0) // nothing yet
			c.setMode(t, pod, f.mode)
			c.reported(t, pod, f.reason, 1, f.says)
			if f.verdict != "" {
				c.diagnosed(t, "probe-failure", string(pod.UID), f.verdict)
			}
		})
	}
	t.Run("nothing of a pod that is well", func(t *testing.T) {
		t.Parallel()
		pod := c.Run(t, node.FaultPod(c.pods, "well", fault.None, false))
		// This pod stays healthy while the others fail and are reported.
		testenv.UntilShown(t, "failures of the others", 90*time.Second, func() (bool, string) {
			m := c.metrics(t)
			for _, rule := range []string{"probe-refused", "probe-connected-silent", "probe-slow"} {
				if m.Sum("kernosis_events_occurred_total", "rule", rule) == 0 {
					return false, rule
				}
			}
			return true, ""
		})
		c.reported(t, pod, "", 0)
	})
}

// setMode sets the mode of a pod.
func (c *cluster) setMode(t testing.TB, pod *corev1.Pod, mode fault.Mode) {
	t.Helper()
	if err := c.SetMode(t.Context(), pod, mode); err != nil {
		t.Fatal(err)
	}
}

// reported waits until the Events of a reason on a pod have counted exactly times occurrences and
// contain the texts. An empty reason requires that there are no Events.
func (c *cluster) reported(t testing.TB, pod *corev1.Pod, reason string, times int, says ...string) {
	t.Helper()
	var last []corev1.Event
	testenv.UntilShown(t, fmt.Sprintf("%s reported %d times on pod %s", reason, times, pod.Name), 90*time.Second, func() (bool, string) {
		var lines []string
		n := 0
		last = nil
		for _, e := range c.Events(t, pod) {
			if e.Source.Component != "kernosis" {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s ×%d: %s", e.Reason, e.Count, e.Message))
			if e.Reason == reason || reason == "" {
				n += int(e.Count)
				last = append(last, e)
			}
		}
		if reason == "" && n > 0 || reason == "OOMKilling" && n > times {
			t.Fatalf("%d of %d are reported: %s", n, times, strings.Join(lines, "\n"))
		}
		return n >= times, strings.Join(lines, "\n")
	})
	for _, what := range says {
		if !slices.ContainsFunc(last, func(e corev1.Event) bool { return strings.Contains(e.Message, what) }) {
			t.Errorf("%s does not say %q: %+v", reason, what, last)
		}
	}
}

// onNode waits for an Event of a reason on the Node that contains a text.
func (c *cluster) onNode(t testing.TB, reason, says string) {
	t.Helper()
	testenv.UntilShown(t, reason+" on the Node", time.Minute, func() (bool, string) {
		list, err := c.api.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + c.Name + ",reason=" + reason,
		})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, e := range list.Items {
			said = append(said, e.Message)
			if strings.Contains(e.Message, says) {
				return true, ""
			}
		}
		return false, strings.Join(said, "\n")
	})
}

// diagnosed waits until a Diagnosis by a set about an object has ended with a verdict. The
// Diagnosis of a first error may run too early for a verdict; then that of its condition has it.
func (c *cluster) diagnosed(t testing.TB, set, about, verdict string) {
	t.Helper()
	testenv.UntilShown(t, fmt.Sprintf("Diagnosis by %s about %s with the verdict %s", set, about, verdict), time.Minute, func() (bool, string) {
		var list v1alpha1.DiagnosisList
		if err := c.kinds.List(t.Context(), &list, client.InNamespace(system)); err != nil {
			t.Fatal(err)
		}
		var said []string
		for i := range list.Items {
			d := &list.Items[i]
			if d.Spec.OperationSet != set {
				continue
			}
			ended := apimeta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionComplete)
			text := fmt.Sprintf("%s on %s, parameters %v, ended %t: %+v", d.Name, d.Spec.NodeName, d.Spec.Parameters, ended, d.Status.Verdict)
			said = append(said, text)
			if strings.Contains(text, about) && d.Spec.NodeName == c.Name && ended && d.Status.Verdict != nil && d.Status.Verdict.Reason == verdict {
				t.Logf("%s: %s", d.Name, d.Status.Verdict.Message)
				return true, ""
			}
		}
		return false, strings.Join(said, "\n")
	})
}

// over waits until a condition has its status without a fault.
func (c *cluster) over(t testing.TB, kind string, with profile) {
	t.Helper()
	testenv.UntilShown(t, "end of "+kind, 90*time.Second, func() (bool, string) {
		is := c.conditions(t)[kind]
		return slices.Contains(with.over, is.Status), fmt.Sprintf("%+v", is)
	})
}

// childKilled checks a pod whose child is killed: the container continues, so only Kernosis reports
// it.
func (c *cluster) childKilled(t *testing.T, with profile) {
	t.Parallel()
	pod := c.Run(t, node.FaultPod(c.pods, "leaks", fault.ChildKilled, false))
	c.setMode(t, pod, fault.ChildKilled)
	// Before the next child allocates memory, which the Diagnosis would otherwise measure.
	c.diagnosed(t, "oom-kill", string(pod.UID), "LimitTooLow")
	for range 4 {
		c.setMode(t, pod, fault.ChildKilled)
	}
	c.reported(t, pod, "OOMKilling", 5, "limit of 48")
	c.condition(t, "FrequentOOMKilling", corev1.ConditionTrue, 30*time.Second)
	if now := c.Pod(t, pod); now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container did not continue: %+v", now.Status)
	}
	if n := c.metrics(t).Sum("kernosis_events_occurred_total", "rule", "oom-kill"); n < 5 {
		t.Errorf("the metrics have %v kills", n)
	}
	c.over(t, "FrequentOOMKilling", with)
}

// taskHangs checks a pod in which a process waits for a lock that another process holds.
func (c *cluster) taskHangs(t *testing.T, with profile) {
	t.Parallel()
	root, yes := int64(0), true
	pod := c.Run(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.pods, Name: "hangs"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: c.image + ":" + tagOne, Args: []string{"inject", "hung-task", "--duration", "45s"},
			SecurityContext: &corev1.SecurityContext{RunAsUser: &root, Privileged: &yes},
		}}, RestartPolicy: corev1.RestartPolicyNever},
	})
	c.reported(t, pod, "TaskHung", 1, "kn-hang-waiter", "kn-hang-holder")
	c.condition(t, "KernelDeadlock", corev1.ConditionTrue, time.Minute)
	c.diagnosed(t, "hung-task", string(pod.UID), "LockHeld")
	c.over(t, "KernelDeadlock", with)
}
