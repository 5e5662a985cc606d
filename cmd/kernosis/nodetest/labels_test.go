package nodetest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A rule reads the labels of the pod in which a kill happened, whatever the agent's source of pods,
// also for a kill while no agent ran. Events have no labels while no rule reads them.
func TestRulesReadLabelsOfPods(t *testing.T) {
	testenv.OnlyInTestAll(t)
	rules := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(rules, "own.yaml"), []byte("apiVersion: rules.kernosis.io/v1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--rules-dir", rules}
	a := newAgent(t, flags...)
	other := agenttest.New(t, a.Path, append(append(kubeletFlags(t, a.node), "--listen", "127.0.0.1:0"), flags...)...)
	other.On = a.node.In
	pod := node.FaultPod(a.namespace, "leaks", fault.ChildKilled, false)
	pod.Labels["team"] = "db"
	pod = a.node.Run(t, pod)
	rest := a.node.Run(t, node.FaultPod(a.namespace, "others", fault.ChildKilled, false))

	for _, from := range []struct {
		name  string
		agent *agenttest.Agent
	}{{"API server", a.Agent}, {"kubelet", other}} {
		t.Run(from.name, func(t *testing.T) {
			agent := from.agent
			agent.In(t)
			write("rules: []\n")
			agent.Start()
			agent.WaitSources(0)
			// kill causes a kill in the pod and returns its event.
			kill := func(of *corev1.Pod, between func()) *event.Event {
				t.Helper()
				ofPod := func(entries []journal.Entry) []*event.Event {
					return slices.DeleteFunc(agenttest.Events(entries, event.OOMKill), func(ev *event.Event) bool {
						return ev.Container == nil || ev.Container.PodUID != string(of.UID)
					})
				}
				before := len(ofPod(agent.Entries()))
				a.has(t, of, fault.ChildKilled)
				between()
				agent.Wait("kill in "+of.Name, 30*time.Second, func(entries []journal.Entry) bool { return len(ofPod(entries)) > before })
				return ofPod(agent.Entries())[before]
			}
			none := func() {}
			ev := kill(pod, none)
			if ev.PodLabels != nil {
				t.Errorf("labels that no rule reads: %v", ev.PodLabels)
			}
			if c := ev.Container; c.PodName != pod.Name || c.PodNamespace != pod.Namespace {
				t.Errorf("names: %+v", c)
			}

			write(`rules:
- name: kill-in-db
  events: [oomkill]
  when: pod.labels["team"] == "db"
  groupBy: [pod.name]
  reason: DatabaseKilled
  message: ${task.comm} of ${pod.labels["app"]}, team ${pod.labels.team}, zone "${pod.labels.zone}"
  severityWhen: {critical: '"team" in pod.labels'}
`)
			if log, ok := agent.Log.Wait(20*time.Second, func(s string) bool { return strings.Contains(s, "rules reloaded") }); !ok {
				t.Fatalf("not reloaded:\n%s", log)
			}
			fires := func(of *corev1.Pod, between func()) {
				t.Helper()
				ev := kill(of, between)
				if ev.PodLabels["app"] != of.Name || ev.PodLabels["team"] != of.Labels["team"] || len(ev.PodLabels) != len(of.Labels) {
					t.Errorf("labels of %s: %v", of.Name, ev.PodLabels)
				}
			}
			fires(rest, none)
			fires(pod, none)
			fires(pod, func() {
				agent.Kill()
				a.has(t, pod, fault.ChildKilled) // no agent runs
				agent.Start()
			})
			var reported []string
			agent.Wait("three kills reported", 30*time.Second, func(entries []journal.Entry) bool {
				reported = nil
				for _, e := range entries {
					for _, tr := range e.Transitions {
						if p := tr.Problem; p != nil && p.Rule == "kill-in-db" && p.State == problem.Firing {
							reported = append(reported, p.Group+": "+p.Message+" "+string(p.Severity))
						}
					}
				}
				return len(reported) >= 3
			})
			for _, line := range reported {
				if !strings.HasPrefix(line, "leaks: ") || !strings.HasSuffix(line, ` of leaks, team db, zone "" critical`) {
					t.Errorf("reported %q", line)
				}
			}
			agent.Stop()
		})
	}
}
