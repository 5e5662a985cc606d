// Package e2e_test installs Kernosis with its chart on a real node, as users do, and tests the life
// of the installation from then on. See docs/testing.md.
package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/kubetest/node/fault"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The names of the chart.
const (
	release    = "kernosis"
	system     = "kernosis" // namespace
	agent      = "kernosis-agent"
	controller = "kernosis-controller"
)

var machine = node.Shared{Cluster: kubetest.Shared{Controllers: true}}

func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	// Parallel steps mostly wait, however few CPUs there are.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(machine.Run(m))
}

// cluster is the test's cluster, with Kernosis in it.
type cluster struct {
	*node.Node

	api    *kubernetes.Clientset // with all rights
	kinds  client.Client         // the same, for Kernosis' CRDs
	config string                // kubeconfig of this user
	helm   string                // programs
	kubect string
	pods   string // namespace of the pods with faults
	image  string // name without tag
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	n := machine.Node(t)
	server := n.Server()
	kinds := apitest.Client(t, server.Admin())
	n.Image(t, fault.Image, testenv.BuildProgram(t, fault.Program))
	return &cluster{
		Node: n, api: server.Client(), kinds: kinds, config: server.Kubeconfig(t, server.Admin()),
		helm: kubetest.Helm(t), kubect: kubetest.Kubectl(t), pods: server.Namespace(t),
	}
}

// Each step starts from the state that the previous one has left, as in the life of an
// installation.
func TestEndToEnd(t *testing.T) {
	testenv.OnlyInTestAll(t)
	c := newCluster(t)
	c.images(t)
	testenv.HoldKernel(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.describe())
		}
	})
	for _, step := range []struct {
		name string
		run  func(*testing.T)
		must bool // the following steps need it to succeed
	}{
		{"installed", c.installed, true},
		{"faults in pods are reported", c.faults, false},
		{"the agent is killed", c.agentKilled, false},
		{"the agent's pod is deleted", c.agentDeleted, false},
		{"kubelet is restarted", c.kubeletRestarted, false},
		{"the API server is restarted", c.serverRestarted, false},
		{"upgraded", c.upgraded, false},
		{"hardened", c.hardened, false},
		{"a host path is left out", c.degraded, false},
		{"uninstalled", c.uninstalled, false},
		{"installed again", c.reinstalled, false},
		{"uninstalled with the kinds", c.uninstalledWithKinds, false},
	} {
		begin := time.Now()
		ok := t.Run(step.name, step.run)
		t.Logf("%s: %s", step.name, time.Since(begin).Round(100*time.Millisecond))
		if !ok && step.must {
			t.FailNow()
		}
	}
}

// kubectl runs kubectl and returns its output.
func (c *cluster) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), c.kubect, append([]string{"--kubeconfig", c.config}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// of returns the pods of a component: agent or controller.
func (c *cluster) of(t testing.TB, component string) []corev1.Pod {
	t.Helper()
	list, err := c.api.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// describe returns what a failed test prints.
func (c *cluster) describe() string {
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "all,cm,leases", "-n", system, "-o", "wide"},
		{"describe", "pods", "-n", system},
		{"logs", "-n", system, "-l", "app.kubernetes.io/instance=" + release, "--all-containers", "--tail=60", "--prefix"},
		{"logs", "-n", system, "-l", "app.kubernetes.io/instance=" + release, "--all-containers", "--tail=60", "--prefix", "--previous"},
		{"describe", "node", c.Name},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	} {
		//nolint:noctx // the test's context has ended
		out, err := exec.Command(c.kubect, append([]string{"--kubeconfig", c.config}, args...)...).CombinedOutput()
		fmt.Fprintf(&b, "kubectl %s (%v)\n%s\n", strings.Join(args, " "), err, out)
	}
	return b.String()
}

// root returns a path in the checkout.
func root(parts ...string) string { return filepath.Join(append([]string{"..", ".."}, parts...)...) }
