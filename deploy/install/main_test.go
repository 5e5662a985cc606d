package install

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/reporter/kube/lease"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster = kubetest.Shared{Own: true} // tests delete the CRDs

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// bench is an installation in its own namespace, with a user who has the documented rights.
type bench struct {
	*testing.T
	server    *kubetest.Server
	api       *kubernetes.Clientset // with all rights
	namespace string
	to        *rest.Config

	mu    sync.Mutex
	lines []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server := cluster.Server(t)
	b := &bench{T: t, server: server, api: server.Client(), namespace: server.Namespace(t)}
	b.to = b.user("uninstall-"+b.namespace, "kernosis-uninstall")
	// The cluster is shared between tests, and Uninstall processes all Nodes.
	t.Cleanup(func() {
		if err := b.api.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	return b
}

// user returns a user with the documented rights of the given roles.
func (b *bench) user(name string, roles ...string) *rest.Config {
	b.Helper()
	granted := slices.DeleteFunc(kubetest.Roles(b, "../../docs/uninstall.md"), func(r rbacv1.ClusterRole) bool { return !slices.Contains(roles, r.Name) })
	if len(granted) < len(roles) {
		b.Fatalf("docs/uninstall.md does not have the roles %q", roles)
	}
	b.server.Grant(b, name, b.namespace, granted...)
	return b.server.Config(b, name)
}

func (b *bench) config() Config {
	c := rest.CopyConfig(b.to)
	c.QPS, c.Burst = 1000, 1000
	return Config{To: c, Namespace: b.namespace, DaemonSet: DefaultDaemonSet, Deployment: DefaultDeployment, Say: b.say}
}

func (b *bench) say(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
}

// said returns the output since the last call.
func (b *bench) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := strings.Join(b.lines, "\n")
	b.lines = nil
	return out
}

func (b *bench) says(parts ...string) {
	b.Helper()
	text := b.said()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			b.Errorf("not reported: %s\n%s", p, text)
		}
	}
}

func labelsOf(component string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "kernosis", "app.kubernetes.io/component": component}
}

// installed creates the DaemonSet and the Deployment with a pod on each of the nodes, and the
// controller's own state. No controller creates or deletes pods.
func (b *bench) installed(nodes ...string) (agents []string) {
	b.Helper()
	template := func(component string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(component)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: component, Image: "kubetest.invalid/none:1"}}},
		}
	}
	selector := func(component string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: labelsOf(component)}
	}
	_, err := b.api.AppsV1().DaemonSets(b.namespace).Create(b.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultDaemonSet}, Spec: appsv1.DaemonSetSpec{Selector: selector("agent"), Template: template("agent")},
	}, metav1.CreateOptions{})
	b.must(err)
	_, err = b.api.AppsV1().Deployments(b.namespace).Create(b.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultDeployment}, Spec: appsv1.DeploymentSpec{Selector: selector("controller"), Template: template("controller")},
	}, metav1.CreateOptions{})
	b.must(err)
	_, err = b.api.CoreV1().ConfigMaps(b.namespace).Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kernosis-trigger-state"}}, metav1.CreateOptions{})
	b.must(err)
	_, err = b.api.CoordinationV1().Leases(b.namespace).Create(b.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "controller.kernosis.io"}}, metav1.CreateOptions{})
	b.must(err)
	for _, n := range nodes {
		b.pod("agent", n)
		agents = append(agents, "agent-"+n)
	}
	b.pod("controller", "")
	return agents
}

func (b *bench) pod(component, node string) {
	b.Helper()
	_, err := b.api.CoreV1().Pods(b.namespace).Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix(component+"-"+node, "-"), Labels: labelsOf(component)},
		Spec:       corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "kubetest.invalid/none:1"}}},
	}, metav1.CreateOptions{})
	b.must(err)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// collect deletes pods once their DaemonSet is deleted, like the garbage collector and kubelet, and
// calls before first.
func (b *bench) collect(before func(), pods ...string) {
	ctx := b.Context()
	done := make(chan struct{})
	b.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := b.api.AppsV1().DaemonSets(b.namespace).Get(ctx, DefaultDaemonSet, metav1.GetOptions{}); err != nil {
				break
			}
			time.Sleep(20 * time.Millisecond) // polling interval
		}
		if before != nil {
			before()
		}
		for _, p := range pods {
			now := int64(0)
			if err := b.api.CoreV1().Pods(b.namespace).Delete(ctx, p, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		}
	}()
}

// writes sets conditions as a field manager.
func (b *bench) writes(manager, node string, list ...corev1.NodeCondition) {
	b.Helper()
	now := metav1.NewTime(time.Now())
	for i := range list {
		if list[i].Reason != lease.ReasonNeverUpdated {
			list[i].LastHeartbeatTime = now
		}
		list[i].LastTransitionTime = now
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
	b.must(err)
	_, err = b.api.CoreV1().Nodes().Patch(b.Context(), node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: manager}, "status")
	b.must(err)
}

// patch merges a JSON text into a node.
func (b *bench) patch(node, text string) {
	b.Helper()
	_, err := b.api.CoreV1().Nodes().Patch(b.Context(), node, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	b.must(err)
}

func (b *bench) leaseOf(node, types string) {
	b.Helper()
	_, err := b.api.CoordinationV1().Leases(b.namespace).Create(b.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: lease.Name(node), Labels: map[string]string{lease.LabelComponent: lease.ComponentAgent}, Annotations: map[string]string{lease.AnnotationTypes: types},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node},
	}, metav1.CreateOptions{})
	b.must(err)
}

func (b *bench) node(name string) *corev1.Node {
	b.Helper()
	n, err := b.api.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{})
	b.must(err)
	return n
}

// conditions returns the condition types of a node except kubelet's, sorted.
func (b *bench) conditions(node string) (out []string) {
	b.Helper()
	for _, c := range b.node(node).Status.Conditions {
		if c.Type != corev1.NodeReady && c.Type != corev1.NodeMemoryPressure {
			out = append(out, string(c.Type))
		}
	}
	slices.Sort(out)
	return out
}

func (b *bench) leases() (out []string) {
	b.Helper()
	list, err := b.api.CoordinationV1().Leases(b.namespace).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	for _, l := range list.Items {
		out = append(out, l.Name)
	}
	return out
}

// within returns a context with the timeout that testenv.Within returns.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(d))
	t.Cleanup(cancel)
	return ctx
}

// through is a transport between client and server, as a function.
type through func(*http.Request, http.RoundTripper) (*http.Response, error)

func (f through) of(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return f(r, next) })
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
