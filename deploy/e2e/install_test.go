package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/kubetest/node"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// install runs helm with the chart and the test's values, and waits until it reports that
// everything is ready.
func (c *cluster) install(t testing.TB, verb string, args ...string) {
	t.Helper()
	c.runHelm(t, append([]string{
		verb, release, root("deploy", "chart", "kernosis"), "--create-namespace", "--values", "testdata/values.yaml",
		"--set-file", `rules.e2e\.yaml=testdata/rules.yaml`, "--set", "image.tag=" + tagOne, "--wait", "--timeout", "2m",
	}, args...)...)
}

// runHelm runs helm in the system namespace.
func (c *cluster) runHelm(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.helm, append([]string{"--kubeconfig", c.config, "--namespace", system}, args...)...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("helm %s: %v\n%s\n%s", strings.Join(args, " "), err, out, c.describe())
	}
	return string(out)
}

// installed checks the result of `helm install`: everything runs as configured, and reports.
func (c *cluster) installed(t *testing.T) {
	c.install(t, "install")
	c.runs(t)
	c.known(t)

	set, err := c.api.AppsV1().DaemonSets(system).Get(t.Context(), agent, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Status.DesiredNumberScheduled != 1 || set.Status.NumberReady != 1 {
		t.Errorf("DaemonSet: %+v", set.Status)
	}
	wanted, err := c.api.AppsV1().Deployments(system).Get(t.Context(), controller, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *wanted.Spec.Replicas != 2 || wanted.Status.ReadyReplicas != 2 {
		t.Errorf("Deployment: %d replicas wanted, %+v", *wanted.Spec.Replicas, wanted.Status)
	}

	a := &c.of(t, "agent")[0]
	if s := a.Spec; !s.HostPID || !s.HostNetwork || s.PriorityClassName != "system-node-critical" {
		t.Errorf("the agent's pod: hostPID %t, hostNetwork %t, priority %s", s.HostPID, s.HostNetwork, s.PriorityClassName)
	}
	if who := c.user(t, a, "agent"); who != "0" {
		t.Errorf("the agent runs as user %s", who)
	}
	for _, p := range c.of(t, "controller") {
		if who := c.user(t, &p, "controller"); who != "65532" {
			t.Errorf("a controller runs as user %s", who)
		}
	}
	if is := c.conditions(t)["KernosisDegraded"]; is.Status != corev1.ConditionFalse {
		t.Errorf("%s: %s", is.Reason, is.Message)
	}
	l := c.lease(t)
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != c.Name || l.Annotations["kernosis.io/draining"] != "" {
		t.Errorf("Lease: %+v %v", l.Spec, l.Annotations)
	}
	if said := c.kubectl(t, "logs", "-n", system, "-l", "app.kubernetes.io/component=agent", "--tail=-1"); strings.Contains(said, "forbidden") {
		t.Errorf("the agent lacks rights:\n%s", said)
	}
	if m := c.metrics(t); m.Sum("kernosis_source_up", "stem", "oomkill") != 1 || m.Sum("kernosis_api_writes_total", "object", "lease") == 0 {
		t.Errorf("metrics of the agent: %v", m["kernosis_source_up"])
	}
}

// runs waits until each component has all its pods, all ready and without restarts.
func (c *cluster) runs(t testing.TB) {
	t.Helper()
	testenv.UntilShown(t, "pods that are ready", time.Minute, func() (bool, string) {
		agents, controllers := c.of(t, "agent"), c.of(t, "controller")
		var said strings.Builder
		ok := len(agents) == 1 && len(controllers) == 2
		for _, p := range append(agents, controllers...) {
			ok = ok && node.Ready(&p) && p.DeletionTimestamp == nil
			fmt.Fprintf(&said, "%s %s; ", p.Name, p.Status.Phase)
		}
		return ok, said.String()
	})
	for _, component := range []string{"agent", "controller"} {
		for _, p := range c.of(t, component) {
			if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
				t.Errorf("%s was restarted %d times: %+v", p.Name, n, p.Status.ContainerStatuses[0].LastTerminationState)
			}
		}
	}
}

// user returns the UID that a container's process runs as, according to the kernel.
func (c *cluster) user(t testing.TB, pod *corev1.Pod, container string) string {
	t.Helper()
	return strings.Fields(c.status(t, pod, container)["Uid"])[0]
}

// status returns the fields of the kernel's status of a container's main process.
func (c *cluster) status(t testing.TB, pod *corev1.Pod, container string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process(t, pod, container)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		all[name] = strings.TrimSpace(value)
	}
	return all
}

// process returns the main process of a container.
func (c *cluster) process(t testing.TB, pod *corev1.Pod, container string) int {
	t.Helper()
	all := c.Processes(t, pod, container)
	if len(all) == 0 {
		t.Fatalf("pod %s has no process", pod.Name)
	}
	return all[0]
}

// metrics returns the agent's metrics, scraped from its pod with the right to do so.
func (c *cluster) metrics(t testing.TB) kubetest.Metrics {
	t.Helper()
	pods := c.of(t, "agent")
	if len(pods) != 1 {
		t.Fatalf("%d agents", len(pods))
	}
	url := fmt.Sprintf("https://%s:20257/metrics", pods[0].Status.PodIP)
	if _, err := c.Get(t.Context(), url, ""); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
		t.Errorf("metrics without a token: %v", err)
	}
	token := c.reader(t)
	var text []byte
	// An agent reviews only a few new tokens per second, and each reader here has its own.
	testenv.UntilShown(t, "metrics", 60*time.Second, func() (bool, string) {
		var err error
		text, err = c.Get(t.Context(), url, token)
		if err != nil && !strings.Contains(err.Error(), "429 Too Many Requests") {
			t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
	return kubetest.ParseMetrics(t, text)
}

// reader returns the token of a service account that may read metrics, by the chart's role.
func (c *cluster) reader(t testing.TB) string {
	t.Helper()
	const name = "reader"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kernosis-metrics"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.pods, Name: name}},
	}
	if _, err := c.api.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err == nil {
		c.Server().ServiceAccount(t, c.pods, name)
	} else if !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return c.Server().Token(t, kubetest.TokenFor{Namespace: c.pods, ServiceAccount: name})
}
