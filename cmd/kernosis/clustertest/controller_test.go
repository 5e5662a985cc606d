package clustertest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// controls runs a controller in the agent's namespace until the test ends.
func (a *agent) controls(server *kubetest.Server) {
	a.t.Helper()
	c := exec.Command(a.path, "controller", "--kubeconfig", server.Kubeconfig(a.t, server.Admin()), "--namespace", a.namespace,
		"--metrics-listen", "", "--health-listen", "")
	process.RunUntilEnd(a.t, c, &testenv.LogBuffer{})
}

// A fault leads by a Trigger to its cause and to a repair of the node, which the policy
// decides on, the controller executes, and the problem's end verifies.
func TestAFaultLeadsToARepairByTheController(t *testing.T) {
	testenv.OnlyInTestAll(t)
	server := cluster.Server(t)
	for _, mode := range []v1alpha1.RemediationMode{v1alpha1.ModeObserve, v1alpha1.ModeEnforce} {
		t.Run(string(mode), func(t *testing.T) {
			a := newAgent(t, server)
			o, _ := oom(t)
			// A separate rule, because the machine may have other kills and the cluster other Triggers,
			// and each further Diagnosis would repair the node too.
			killed := "killed-" + strings.ToLower(string(mode))
			rules := t.TempDir()
			rule := fmt.Sprintf(`apiVersion: rules.kernosis.io/v1
conditions:
  KillsHere: {healthyReason: NoKillsHere, healthyMessage: none}
rules:
- {name: %s, events: [oomkill], when: cgroup.path.endsWith(%q), condition: KillsHere, reason: KilledHere, message: killed, clearAfter: 10s}
`, killed, filepath.Base(o.Cgroup()))
			if err := os.WriteFile(filepath.Join(rules, "here.yaml"), []byte(rule), 0o600); err != nil {
				t.Fatal(err)
			}
			a.Args = append(a.Args, "--rules-dir", rules)
			nodes := server.Client().CoreV1().Nodes()
			patch := []byte(`{"metadata":{"labels":{"repaired":"` + a.node + `"}}}`)
			if _, err := nodes.Patch(t.Context(), a.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: "cordon-" + a.node}}
			set.Spec.AdjacencyList = []v1alpha1.Node{
				{ID: 0, To: []int32{1}}, {ID: 1, Operation: "kernel-facts", To: []int32{2}}, {ID: 2, Operation: "cordon"},
			}
			on := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: "cordon-" + a.node}}
			on.Spec.OperationSet = set.Name
			on.Spec.SourceTemplate.ProblemTemplate = &v1alpha1.ProblemTemplate{Rules: []string{killed}}
			policy := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "of-" + a.node}}
			policy.Spec.Mode = mode
			policy.Spec.NodeSelector.MatchLabels = map[string]string{"repaired": a.node}
			a.apply(set, on, policy)
			a.controls(server)
			a.Start()
			a.WaitSources(0)
			a.knows(on.Name)
			ofIt := func(d *v1alpha1.Diagnosis) bool { return d.Labels[v1alpha1.LabelTrigger] == on.Name }
			if _, err := o.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := a.awaitEnd(2*time.Minute, ofIt)
			want, cordoned := v1alpha1.ResultWouldRun, false
			if mode == v1alpha1.ModeEnforce {
				want, cordoned = v1alpha1.ResultSucceeded, true
			}
			if d.Status.Phase != v1alpha1.PhaseSucceeded || state(d, 2) != want || !slices.Equal(d.Status.SucceededPath, v1alpha1.Path{1, 2}) {
				t.Errorf("status %+v", d.Status)
			}
			node, err := nodes.Get(t.Context(), a.node, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if node.Spec.Unschedulable != cordoned {
				t.Errorf("cordoned: %v", node.Spec.Unschedulable)
			}
			reason := "WouldCordon"
			if cordoned {
				reason = "Cordoned"
				a.await("verification", 2*time.Minute, func(ctx context.Context) (bool, string, error) {
					list, err := a.diagnoses(ctx, ofIt)
					return len(list) == 1 && apimeta.IsStatusConditionTrue(list[0].Status.Conditions, v1alpha1.ConditionVerified), summary(list), err
				})
			}
			a.await("Event on the node", time.Minute, func(ctx context.Context) (bool, string, error) {
				list, err := server.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + a.node})
				var reasons []string
				if err == nil {
					for i := range list.Items {
						reasons = append(reasons, list.Items[i].Reason)
					}
				}
				return slices.Contains(reasons, reason), strings.Join(reasons, " "), err
			})
			a.Stop()
		})
	}
}
