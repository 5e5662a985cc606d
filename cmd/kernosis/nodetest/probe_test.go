package nodetest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// kubeletFlags returns flags with which an agent queries kubelet as a service account that may.
func kubeletFlags(t testing.TB, n *node.Node) []string {
	t.Helper()
	server := n.Server()
	ns := server.Namespace(t)
	server.ServiceAccount(t, ns, "agent", rbacv1.ClusterRole{
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/pods", "nodes/metrics"}, Verbs: []string{"get"}}},
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(server.Token(t, kubetest.TokenFor{Namespace: ns, ServiceAccount: "agent"})), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--kubelet-url", n.KubeletURL(), "--kubelet-ca", n.KubeletCA(), "--kubelet-token-file", token}
}

// failing is a pod whose probe fails in one way, and the expected report.
type failing struct {
	mode    fault.Mode
	grpc    bool
	counted bool   // only kubelet's counters show the failure, no socket does
	waits   bool   // the report waits for kubelet's counters
	verdict string // verdict of the failure
	reason  string // reason of the Event
	says    string // text in its message
	queued  bool   // the connection may also not be accepted, which is equally right

	pod   *corev1.Pod
	since time.Time
}

func (f *failing) name() string {
	if f.grpc {
		return string(f.mode) + "-grpc"
	}
	return string(f.mode)
}

// isVerdict reports whether a verdict is right.
func (f *failing) isVerdict(v string) bool {
	return v == f.verdict || f.queued && v == event.VerdictNotAccepted
}

// isReason reports whether the reason of an Event is right.
func (f *failing) isReason(r string) bool {
	return r == f.reason || f.queued && r == "ProbeTargetNotAccepted"
}

func failures() []*failing {
	return []*failing{
		// kubelet's counters are read every ten seconds, so these have the default period.
		{mode: fault.Status, counted: true, verdict: event.VerdictStatus, reason: "ProbeBadStatus", says: "503"},
		{mode: fault.Status, grpc: true, counted: true, verdict: event.VerdictStatus, reason: "ProbeBadStatus", says: "NOT_SERVING"},
		{mode: fault.TLSGarbage, counted: true, verdict: event.VerdictTLS, reason: "ProbeTLSFailed", says: "does not look like a TLS handshake"},
		{mode: fault.ExecFails, counted: true, verdict: event.VerdictExecFailed, reason: "ProbeExecFailed", says: "not well"},
		{mode: fault.ExecHangs, counted: true, verdict: event.VerdictExecSlow, reason: "ProbeExecTimeout", says: "did not end in time"},

		{mode: fault.Refused, verdict: event.VerdictRefused, reason: "ProbeTargetRefused", says: "container listens on :8081"},
		{mode: fault.QueueFull, verdict: event.VerdictAcceptQueueFull, reason: "ProbeTargetAcceptQueueFull", says: "accept queue full 2/1 on :8080"},
		{mode: fault.NotAccepted, verdict: event.VerdictNotAccepted, reason: "ProbeTargetNotAccepted", says: "not accepted in 1s"},
		{mode: fault.Silent, verdict: event.VerdictSilent, reason: "ProbeTargetSilent", says: "no byte back in 1s"},
		{mode: fault.Reset, verdict: event.VerdictReset, reason: "ProbeTargetReset", says: "reset"},
		{mode: fault.Slow, waits: true, verdict: event.VerdictSlow, reason: "ProbeTargetSlow", says: "not complete in 1s"},
		// A stopped process leaves connections in the accept queue.
		{mode: fault.Stopped, verdict: event.VerdictNotAccepted, reason: "ProbeTargetNotAccepted", says: "stopped: probepod"},
		// How far it gets before its quota is used up depends on the scheduler.
		{mode: fault.Throttled, verdict: event.VerdictSilent, reason: "ProbeTargetSilent", says: "CPU-throttled", queued: true},
	}
}

// Each way in which a probe can fail is reported on the pod with its cause, before kubelet restarts
// the container, and with as many failures as kubelet counts; nothing is reported for healthy pods.
func TestAFailedProbeIsReportedWithItsCause(t *testing.T) {
	testenv.OnlyInTestAll(t)
	n := machine.Node(t)
	a := newAgent(t, kubeletFlags(t, n)...)
	a.Start()
	a.WaitSources(0)
	var healthy []*corev1.Pod
	for _, grpc := range []bool{false, true} {
		healthy = append(healthy, n.Run(t, node.FaultPod(a.namespace, fmt.Sprintf("healthy-%t", grpc), fault.None, grpc)))
	}
	all := failures()
	for _, f := range all {
		pod := node.FaultPod(a.namespace, f.name(), f.mode, f.grpc)
		if f.counted {
			pod.Spec.Containers[0].LivenessProbe.PeriodSeconds = 10
		}
		f.pod = n.Run(t, pod)
	}
	cut := n.Run(t, node.FaultPod(a.namespace, "reset-late", fault.ResetLate, false))
	a.has(t, cut, fault.ResetLate)
	for _, f := range all {
		f.since = a.has(t, f.pod, f.mode)
	}
	// First the pods that are probed every second, because that continues after their restart.
	for _, counted := range []bool{false, true} {
		for _, f := range all {
			if f.counted == counted {
				t.Run(f.name(), func(t *testing.T) { a.reports(t, f) })
			}
		}
	}
	t.Run("reset-late", func(t *testing.T) { a.reportsNoMore(t, cut) })
	for _, pod := range healthy {
		// On a very busy machine a second may be too short for any pod.
		if reported, failed := a.reported(t, pod), a.counted(t, pod); len(reported) != 0 && failed == 0 {
			t.Errorf("reported for a pod that is well: %+v", reported)
		}
	}
	a.Stop()
}

// reportsNoMore checks that answers that were cut off are not reported as failures unless kubelet
// counts them.
func (a *agent) reportsNoMore(t *testing.T, pod *corev1.Pod) {
	testenv.UntilShown(t, "answers that kubelet does not count", 60*time.Second, func() (bool, string) {
		n := a.metrics(t).Sum("kernosis_probe_observations_total", "outcome", "not-counted-by-kubelet")
		return n >= 5, fmt.Sprint(n)
	})
	reported := probes(a, pod)
	if counted := a.counted(t, pod); len(reported) > counted {
		t.Errorf("kubelet has counted %d failures, and %d are reported: %+v", counted, len(reported), reported[0].Probe)
	}
}

// reports checks what is reported about a pod after kubelet has restarted its container. The new
// container is healthy, but a busy machine may cause further failures.
func (a *agent) reports(t *testing.T, f *failing) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range probes(a, f.pod) {
				t.Logf("at %s: %+v", e.Time.Format(time.StampMilli), e.Probe)
			}
		}
	})
	threshold := int(f.pod.Spec.Containers[0].LivenessProbe.FailureThreshold)
	a.node.Await(t, f.pod, "restarted", 90*time.Second, func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
	killed := a.killed(t, f.pod)
	reported := func() (sum int) {
		for _, e := range a.reported(t, f.pod) {
			sum += int(e.Count)
		}
		return sum
	}
	want := threshold
	testenv.UntilShown(t, "Event with the whole count", 30*time.Second, func() (bool, string) { return reported() >= want, a.node.Describe(t, f.pod) })
	inTime, checked := false, 0
	events := a.reported(t, f.pod)
	slices.SortStableFunc(events, func(x, y corev1.Event) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	for _, e := range events {
		if checked >= threshold {
			break
		}
		checked += int(e.Count)
		t.Logf("%s after the fault: %s ×%d: %s", e.CreationTimestamp.Sub(f.since).Round(time.Second), e.Reason, e.Count, e.Message)
		if !f.isReason(e.Reason) || !strings.Contains(e.Message, f.says) {
			t.Errorf("%s: %q; want %s with %q", e.Reason, e.Message, f.reason, f.says)
		}
		// The failure for which kubelet kills is counted at the same time.
		early := !e.CreationTimestamp.After(killed)
		if inTime = inTime || early; !early && !f.counted && !f.waits {
			t.Errorf("%s was reported at %s, and kubelet killed at %s", e.Reason, e.CreationTimestamp, killed)
		}
	}
	if !inTime {
		t.Errorf("nothing was reported before kubelet killed at %s", killed)
	}
	var counts []int
	for i, e := range probes(a, f.pod) {
		counts = append(counts, int(e.Probe.Failures))
		if p := e.Probe; i < threshold && !f.isVerdict(p.Verdict) || int(p.Threshold) != threshold || p.Probe != "liveness" || p.Container != "main" {
			t.Errorf("want verdict %q: %+v", f.verdict, e.Probe)
		}
	}
	if len(counts) < want || !slices.Equal(counts[:want], []int{1, 2, 3}) || len(counts) > want && counts[want] != 1 {
		t.Errorf("failures reported as %v, threshold %d", counts, threshold)
	}
	if failed := a.counted(t, f.pod); failed < threshold {
		t.Errorf("kubelet has counted %d failures, threshold %d", failed, threshold)
	}
	// kubelet's counters show a failure a moment later.
	testenv.UntilShown(t, "agreement with kubelet's counts", 30*time.Second, func() (bool, string) {
		failed := a.metrics(t).Sum("kernosis_probe_results_total", "namespace", f.pod.Namespace, "pod", f.pod.Name, "probe_type", "liveness", "result", "failed")
		reported, counted := len(probes(a, f.pod)), a.counted(t, f.pod)
		return int(failed) == reported && reported == counted, fmt.Sprintf("the metrics have %v failures, %d were reported, and kubelet has counted %d", failed, reported, counted)
	})
	causes := a.why(t, f.pod)
	if len(probes(a, f.pod)) == want { // otherwise the first cause may belong to a later failure
		causes = causes[:1]
	}
	if !slices.ContainsFunc(causes, func(c cause) bool { return f.isReason(path.Base(c.Doc)) && strings.Contains(c.text, f.says) }) {
		t.Errorf("why: %+v", causes)
	}
}

// killed returns when kubelet killed the container.
func (a *agent) killed(t *testing.T, pod *corev1.Pod) time.Time {
	t.Helper()
	for _, e := range a.node.Events(t, pod) {
		if e.Reason == "Killing" {
			return e.FirstTimestamp.Time
		}
	}
	t.Fatalf("kubelet has killed nothing:\n%s", a.node.Describe(t, pod))
	return time.Time{}
}

// counted returns how many failures of a pod's liveness probe kubelet has counted.
func (a *agent) counted(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	m := kubetest.ParseMetrics(t, a.node.Kubelet(t, "/metrics/probes"))
	return int(m.Sum("prober_probe_total", "namespace", pod.Namespace, "pod", pod.Name, "probe_type", "Liveness", "result", "failed"))
}

// cause is what "kernosis why" says about one problem.
type cause struct {
	Doc  string `json:"doc"` // ends with the reason of the Event
	text string // the whole cause
}

// why returns the causes from "kernosis why", which only reads the API server.
func (a *agent) why(t *testing.T, pod *corev1.Pod) (causes []cause) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), a.Path, "why", "pod", pod.Namespace+"/"+pod.Name, "--kubeconfig", a.kubeconfig, "-o", "json")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("why: %v\n%s", err, out)
	}
	var answer struct {
		Causes []json.RawMessage `json:"causes"`
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Causes) == 0 {
		t.Fatalf("why: %v: %s", err, out)
	}
	for _, text := range answer.Causes {
		c := cause{text: string(text)}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("why: %v: %s", err, out)
		}
		causes = append(causes, c)
	}
	return causes
}

// probes returns the agent's reports of a pod's failed probes, in order.
func probes(a *agent, pod *corev1.Pod) []*event.Event {
	return slices.DeleteFunc(agenttest.Events(a.Entries(), event.Probe), func(e *event.Event) bool {
		return e.Probe.Namespace != pod.Namespace || e.Probe.Pod != pod.Name
	})
}
