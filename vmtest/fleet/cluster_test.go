package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Service accounts of the product, each with exactly the documented rights.
const (
	agentAccount      = "default" // also of the pods
	controllerAccount = "controller"
)

// setRepair is the OperationSet of the fleet's Diagnoses.
const setRepair = "fleet-repair"

// Policies: one waits for approval; the other's budget is smaller than the number of nodes to
// repair.
const (
	policyApprove = "fleet-approve"
	policyBudget  = "fleet-budget"
	budget        = 5
	// partLabel marks the nodes of policyBudget, one node in inBudget.
	partLabel = "fleet.example/part"
	inBudget  = 5
)

// grantAgents grants the agents' account its rights.
func grantAgents(tb testing.TB, server *kubetest.Server, namespace string) {
	tb.Helper()
	everywhere, inNamespace := kubetest.AgentRights(tb, filepath.Join(root, "docs/cluster.md"))
	server.Grant(tb, "system:serviceaccount:"+namespace+":"+agentAccount, namespace,
		rbacv1.ClusterRole{Rules: everywhere}, rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{Kind: "Role"}, Rules: inNamespace})
}

// makeNodes creates Nodes with one pod each, some in parallel.
func makeNodes(tb testing.TB, server *kubetest.Server, namespace string, n int) {
	tb.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error {
			node := nodeName(i)
			server.NodeNamed(tb, node)
			server.Pod(tb, namespace, podOf(node), node)
			if i%inBudget != 0 {
				return nil
			}
			label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"budget"}}}`, partLabel)
			_, err := server.Client().CoreV1().Nodes().Patch(tb.Context(), node, types.MergePatchType, label, metav1.PatchOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil || tb.Failed() {
		tb.Fatal(err)
	}
}

// makeRepairs creates what starts a Diagnosis of each node, which inspects the node and repairs it
// if a policy allows it.
func makeRepairs(tb testing.TB, c client.Client) {
	tb.Helper()
	most, all, history, approve := int32(budget), int32(100), int32(10000), v1alpha1.LabelSelector{}
	approve.MatchExpressions = []v1alpha1.LabelRequirement{{Key: partLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}
	set := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: setRepair}}
	set.Spec.AdjacencyList = []v1alpha1.Node{
		{ID: 0, To: []int32{1}}, {ID: 1, Operation: "kernel-facts", To: []int32{2}},
		{ID: 2, Operation: "cordon", To: []int32{3}}, {ID: 3, Operation: "uncordon"},
	}
	trigger := &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: setRepair}}
	trigger.Spec.OperationSet, trigger.Spec.HistoryLimit = setRepair, &history
	trigger.Spec.SourceTemplate.ProblemTemplate = &v1alpha1.ProblemTemplate{Rules: []string{ruleRepair}}
	policy := func(name string, mode v1alpha1.RemediationMode, of v1alpha1.LabelSelector) *v1alpha1.RemediationPolicy {
		return &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RemediationPolicySpec{
			Mode: mode, NodeSelector: of, Budget: v1alpha1.Budget{MaxNodes: &most, MaxPercent: &all},
			CooldownPerNode: &metav1.Duration{}, VerifyWithin: metav1.Duration{Duration: 12 * time.Hour},
		}}
	}
	for _, o := range []client.Object{
		set, trigger, policy(policyApprove, v1alpha1.ModeApprove, approve),
		policy(policyBudget, v1alpha1.ModeEnforce, v1alpha1.LabelSelector{MatchLabels: map[string]string{partLabel: "budget"}}),
	} {
		if err := c.Create(tb.Context(), o); err != nil {
			tb.Fatal(err)
		}
	}
}

// leading is a controller process.
type leading struct {
	*process.Process
	command, env []string
	log          string
	metrics      string    // address
	ended        time.Time // when it was found to have ended; zero while it runs
	killed       bool      // killed by the test, which starts it again
}

// newController returns a controller that is not started yet, with the product's settings and
// further arguments. It has that limit of memory, in bytes, unless it is 0.
func newController(tb testing.TB, kubeconfig, namespace string, limit int64, args ...string) *leading {
	tb.Helper()
	c := &leading{metrics: kubetest.FreeAddress(tb), log: filepath.Join(tb.TempDir(), "controller.log")}
	c.command = append([]string{
		agenttest.Program(tb), "controller", "--kubeconfig", kubeconfig, "--namespace", namespace,
		"--metrics-listen", c.metrics, "--health-listen", kubetest.FreeAddress(tb),
	}, args...)
	if limit > 0 {
		c.env = []string{fmt.Sprintf("GOMEMLIMIT=%d", limit/5*4)} // as the controller does itself in a cgroup
	}
	return c
}

// start starts the process, also again after it has ended, as its Deployment would.
func (c *leading) start(tb testing.TB) {
	tb.Helper()
	cmd := exec.Command(c.command[0], c.command[1:]...) //nolint:noctx // it is ended below
	cmd.Env = append(os.Environ(), c.env...)
	p, err := process.Start(cmd, "controller", c.log)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Stop(syscall.SIGKILL, 0) })
	c.Process, c.ended, c.killed = p, time.Time{}, false
}

// restartAfter is how long kubelet waits before it restarts a container that has ended.
const restartAfter = 10 * time.Second

// tend restarts controllers that have ended, as a Deployment would: a controller exits when it
// can't renew its Lease.
func (f *fleet) tend() {
	f.Helper()
	for _, c := range f.controllers {
		switch {
		case c.Running() || c.killed:
		case c.ended.IsZero():
			f.say("%v", c.Explain("has ended"))
			c.ended = time.Now()
		case time.Since(c.ended) > restartAfter:
			c.start(f.TB)
			f.restarts++
			f.meter.set(programLeader)
		}
	}
	if f.restarts > f.metered && leaderOf(f.TB, f.controllers) != nil {
		f.metered = f.restarts
		f.meterControllers()
	}
}

// startControllers starts two controllers with the product's settings and memory limit, in bytes.
func startControllers(tb testing.TB, server *kubetest.Server, namespace string, limit int64) []*leading {
	tb.Helper()
	server.ServiceAccount(tb, namespace, controllerAccount, kubetest.ControllerRoles(tb, root)...)
	token := server.Token(tb, kubetest.TokenFor{Namespace: namespace, ServiceAccount: controllerAccount})
	kubeconfig := server.Kubeconfig(tb, server.WithToken(token))
	var all []*leading
	for range 2 {
		c := newController(tb, kubeconfig, namespace, limit)
		c.start(tb)
		all = append(all, c)
	}
	testenv.Until(tb, "a controller leads", 2*time.Minute, func() bool { return leaderOf(tb, all) != nil })
	return all
}

// leaderOf returns the leading controller, or nil.
func leaderOf(tb testing.TB, all []*leading) *leading {
	tb.Helper()
	for _, c := range all {
		if !c.Running() {
			continue
		}
		if text, err := get(tb.Context(), "http://"+c.metrics+"/metrics"); err == nil &&
			kubetest.ParseMetrics(tb, text).Sum("leader_election_master_status") == 1 {
			return c
		}
	}
	return nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// checkNodes returns errors in the conditions of Nodes: kubelet's and ours, where all except the
// first must be as from a healthy agent.
func checkNodes(ctx context.Context, server *kubetest.Server, want map[string]map[string]string) (wrong []string, err error) {
	list, err := server.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		n := &list.Items[i]
		for _, c := range n.Status.Conditions {
			if w, ok := want[n.Name][string(c.Type)]; ok && w != string(c.Status)+" "+c.Reason {
				wrong = append(wrong, fmt.Sprintf("%s: condition %s is %s %s, want %s", n.Name, c.Type, c.Status, c.Reason, w))
			}
		}
		if have := len(n.Status.Conditions); have != len(want[n.Name]) {
			wrong = append(wrong, fmt.Sprintf("%s: %d conditions, want %d", n.Name, have, len(want[n.Name])))
		}
	}
	if len(list.Items) != len(want) {
		wrong = append(wrong, fmt.Sprintf("%d Nodes, want %d", len(list.Items), len(want)))
	}
	return wrong, nil
}

// checkEvents compares the agents' Events with what was reported.
func checkEvents(ctx context.Context, server *kubetest.Server, component string, want map[string]int) (wrong []string, err error) {
	got := map[string]int{}
	o := metav1.ListOptions{Limit: 5000}
	for {
		list, err := server.Client().CoreV1().Events(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Source.Component == component {
				got[strings.Join([]string{e.Namespace, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason}, " ")] += int(e.Count)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return differences(got, want), nil
		}
	}
}

// differences returns what was lost or duplicated.
func differences(got, want map[string]int) (wrong []string) {
	for what, n := range want {
		switch {
		case got[what] < n:
			wrong = append(wrong, fmt.Sprintf("lost: Events %s tell %d, want %d", what, got[what], n))
		case got[what] > n:
			wrong = append(wrong, fmt.Sprintf("doubled: Events %s tell %d, want %d", what, got[what], n))
		}
	}
	for what, n := range got {
		if _, ok := want[what]; !ok {
			wrong = append(wrong, fmt.Sprintf("unforeseen: Events %s tell %d", what, n))
		}
	}
	return wrong
}
