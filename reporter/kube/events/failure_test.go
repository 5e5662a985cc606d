package events_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A terminating namespace accepts no new Events: faults of its pod are reported on the Node.
func TestNamespaceThatGoes(t *testing.T) {
	a := newAgent(t, nil)
	ns := a.server.Namespace(t)
	p := a.pod(ns, "web-1")
	if err := a.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.report(kill(string(p.UID)))
	a.report(kill(string(p.UID)))
	a.sent(2)
	testenv.Until(t, "the Node's Event says so", time.Minute, func() bool {
		on := a.onNode()
		return len(on) == 1 && on[0].Count == 2 && strings.HasSuffix(on[0].Message, "(2 of 2 not reported on their pods)")
	})
	if got := a.sink.Stats().Rules["oom-kill"].Unreported; got[events.AstrayNamespace] != 2 || len(got) != 1 {
		t.Error(got)
	}
	if on := a.onPod(p); len(on) != 0 {
		t.Error(on)
	}
	if got := a.sink.Stats().Requests; got[events.NamespaceGone] == 0 || got[conditions.Forbidden] != 0 {
		t.Errorf("%v: it lacks no right", got)
	}
	// A deleted namespace, and a pod in a namespace that never existed.
	a.pods.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns + "-never", Name: "x", UID: "never"}})
	a.report(kill("never"))
	a.sent(3)
	if got := a.sink.Stats().Rules["oom-kill"]; got.Unreported[events.AstrayNamespace] != 3 || got.Happened != 3 {
		t.Errorf("%+v", got)
	}
}

// A disk that is full at the start does not prevent reports; the state is saved when there is
// room.
func TestFullDiskAtTheStart(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: no filesystem can be mounted")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=1"); err != nil { // the directory's own inode
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	a := newAgent(t, func(c *events.Config) { c.Dir = dir })
	a.report(kill(""))
	a.sent(1)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "nr_inodes=100"); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the state is saved", time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(dir, events.StateFile))
		return err == nil
	})
	a.stop()
}

func TestPodThatStaysUnknown(t *testing.T) {
	a := newAgent(t, func(c *events.Config) { c.PodWait = 300 * time.Millisecond })
	a.report(kill("f00-ba4"))
	testenv.Until(t, "it is reported on the Node alone", time.Minute, func() bool {
		on := a.onNode()
		return len(on) == 1 && strings.Contains(on[0].Message, "pod f00-ba4") && strings.HasSuffix(on[0].Message, "(1 of 1 not reported on their pods)")
	})
	if got := a.sink.Stats().Rules["oom-kill"].Unreported; got[events.AstrayPod] != 1 {
		t.Error(got)
	}
	// A pod that becomes known in time.
	uid := types.UID("late")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.server.Namespace(t), Name: "late", UID: uid}}
	a.report(kill(string(uid)))
	a.pods.add(p)
	testenv.Until(t, "it is reported on its pod", time.Minute, func() bool { return total(a.onPod(p)) == 1 })
}

// An Event lives for an hour unless the server is configured otherwise; a series may live longer.
func TestEventThatIsGone(t *testing.T) {
	a := newAgent(t, nil)
	p := a.pod(a.server.Namespace(t), "web-1")
	for range 3 {
		a.report(kill(string(p.UID)))
	}
	a.sent(3)
	on := a.onPod(p)
	if err := a.client.CoreV1().Events(p.Namespace).Delete(t.Context(), on[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.report(kill(string(p.UID)))
	a.sent(4)
	again := a.onPod(p)
	if len(again) != 1 || again[0].Count != 4 || again[0].Name != on[0].Name || again[0].UID == on[0].UID {
		t.Errorf("%+v", again)
	}
	if st := a.sink.Stats(); st.Requests[events.Recreated] != 1 {
		t.Errorf("%+v", st)
	}
	if n := kubetest.Sum(t, kubetest.Registered(t, a.sink), "kernosis_events_occurred_total", "rule", "oom-kill"); n != 4 {
		t.Errorf("the metric has %v", n)
	}
}

// Faults while the API server is unavailable are reported when it is back, in order.
func TestOutage(t *testing.T) {
	for _, how := range []string{"stopped", "paused"} {
		t.Run(how, func(t *testing.T) {
			a := newAgent(t, func(c *events.Config) { c.Timeout = time.Second })
			ns := a.server.Namespace(t)
			var all []*corev1.Pod
			for i := range 10 {
				all = append(all, a.pod(ns, fmt.Sprint("web-", i)))
			}
			if how == "stopped" {
				a.server.Kill(t)
			} else {
				a.server.Pause(t)
			}
			for i := range 1000 {
				a.report(kill(string(all[i%10].UID)))
			}
			testenv.Until(t, "requests fail", time.Minute, func() bool { _, failed := requests(a.sink.Stats()); return failed >= 3 })
			if how == "stopped" {
				a.server.Start(t)
			} else {
				a.server.Resume(t)
			}
			for i := range 1000 {
				a.report(kill(string(all[i%10].UID)))
			}
			a.sent(2000)
			if got := total(a.onNode()); got != 2000 {
				t.Errorf("Events on the Node tell of %d", got)
			}
			var order []corev1.Event
			for _, p := range all {
				on := a.onPod(p)
				if total(on) != 200 || len(on) != 1 {
					t.Errorf("%d Events tell of %d", len(on), total(on))
				}
				order = append(order, on...)
			}
			// The Events of a namespace in the order of creation: the first version of each.
			made := slices.SortedFunc(slices.Values(order), func(a, b corev1.Event) int {
				return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(pod(t, a), pod(t, b)))
			})
			var ahead []string // the Event whose request ended the outage may be
			for i := 1; i < len(made); i++ {
				if pod(t, made[i]) < pod(t, made[i-1]) {
					ahead = append(ahead, made[i-1].InvolvedObject.Name)
				}
			}
			if len(ahead) > 1 {
				t.Errorf("created before earlier Events: %q", ahead)
			}
		})
	}
}

func pod(t *testing.T, e corev1.Event) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(e.InvolvedObject.Name, "web-"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An agent without permission keeps its Events until it gets permission.
func TestRightThatComesLater(t *testing.T) {
	server := cluster.Server(t)
	const user = "kernosis-without-rights"
	a := newAgent(t, func(c *events.Config) { c.Client = kubetest.Clientset(t, server.Config(t, user)) })
	p := a.pod(server.Namespace(t), "web-1")
	a.report(kill(string(p.UID)))
	testenv.Until(t, "it is refused", time.Minute, func() bool { return a.sink.Stats().Requests[conditions.Forbidden] >= 2 })
	// The permission that the agent needs for Events.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}}}
	if _, err := a.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if _, err := a.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.sent(1)
	if total(a.onPod(p)) != 1 || total(a.onNode()) != 1 {
		t.Error("it was not reported")
	}
	a.report(kill(string(p.UID))) // by a patch
	a.sent(2)
	if total(a.onPod(p)) != 2 {
		t.Error("it was not reported again")
	}
}

// An Event that breaks the API's rules is never accepted: it is counted as dropped, and later
// Events are still reported.
func TestEventThatIsNeverTaken(t *testing.T) {
	a := newAgent(t, nil)
	a.pods.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.server.Namespace(t), Name: "x", UID: "bad", Labels: map[string]string{"no label!": "?"}}})
	a.report(kill("bad"))
	p := a.pod(a.server.Namespace(t), "good")
	a.report(kill(string(p.UID)))
	a.sent(2)
	if got := a.sink.Stats().Rules["oom-kill"]; got.Unreported[events.AstrayInvalid] != 1 || len(got.Dropped) != 0 {
		t.Errorf("%+v", got)
	}
	if total(a.onPod(p)) != 1 || total(a.onNode()) != 2 {
		t.Error("the rest was not reported")
	}
}

// An agent that ends sends the counts that were not due yet; the next one continues with the same
// Events.
func TestRestart(t *testing.T) {
	a := newAgent(t, func(c *events.Config) { c.PatchEvery = time.Hour })
	p := a.pod(a.server.Namespace(t), "web-1")
	for range 10 {
		a.report(kill(string(p.UID)))
	}
	testenv.Until(t, "all is counted", time.Minute, func() bool { return a.sink.Stats().Rules["oom-kill"].Happened == 10 })
	a.stop()
	if total(a.onPod(p)) != 10 || total(a.onNode()) != 10 {
		t.Errorf("after the end %d on the pod, %d on the Node", total(a.onPod(p)), total(a.onNode()))
	}
	if err := a.journal.Close(); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.report(kill(string(p.UID)))
	testenv.Until(t, "all is counted", time.Minute, func() bool { return a.sink.Stats().Rules["oom-kill"].Happened == 11 })
	a.stop()
	if on := a.onPod(p); len(on) != 1 || on[0].Count != 11 {
		t.Errorf("%+v", on)
	}
}

// The real source of pods, with a pod that is deleted before its Event is created.
func TestPodThatWasDeleted(t *testing.T) {
	server := cluster.Server(t)
	node := server.Node(t)
	watch := newWatch(t, server, node)
	a := newAgent(t, func(c *events.Config) { c.Node, c.Pods = node, watch })
	a.node = node
	p := server.Pod(t, server.Namespace(t), "short-lived", node)
	testenv.Until(t, "the pod is known", time.Minute, func() bool { _, ok := watch.Pod(string(p.UID)); return ok })
	server.DeletePod(t, p.Namespace, p.Name)
	testenv.Until(t, "the pod is gone", time.Minute, func() bool {
		_, there := watch.Named(p.Namespace, p.Name)
		_, known := watch.Pod(string(p.UID))
		return !there && known
	})
	a.report(kill(string(p.UID)))
	a.sent(1)
	on := a.onPod(p)
	if len(on) != 1 || on[0].Labels["app"] != "short-lived" {
		t.Errorf("%+v", on)
	}
}

func newWatch(t *testing.T, server *kubetest.Server, node string) *pods.Watch {
	t.Helper()
	client, err := metadata.NewForConfig(server.Admin())
	if err != nil {
		t.Fatal(err)
	}
	w, err := pods.NewWatch(pods.WatchConfig{Client: client, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	testenv.Until(t, "the pods are known", time.Minute, func() bool { return w.Known(time.Now()) })
	return w
}
