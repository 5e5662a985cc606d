package pods_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func watch(t *testing.T, node string) *pods.Watch {
	t.Helper()
	client, err := metadata.NewForConfig(cluster.Server(t).Admin())
	if err != nil {
		t.Fatal(err)
	}
	return runWatch(t, pods.WatchConfig{Client: client, Node: node})
}

// runWatch returns a Watch that has seen all pods.
func runWatch(t *testing.T, c pods.WatchConfig) *pods.Watch {
	t.Helper()
	w, err := pods.NewWatch(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	testenv.Until(t, "all pods are seen", time.Minute, func() bool { return w.Known(time.Now()) })
	return w
}

func TestPodsOfTheNode(t *testing.T) {
	server := cluster.Server(t)
	node, other, ns := server.Node(t), server.Node(t), server.Namespace(t)
	before := server.Pod(t, ns, "before", node)
	w := watch(t, node)
	if p, ok := w.Pod(string(before.UID)); !ok || p.Namespace != ns || p.Name != "before" || p.Labels["app"] != "before" || p.UID != string(before.UID) {
		t.Errorf("%+v, %v", p, ok)
	}
	if p, ok := w.Named(ns, "before"); !ok || p.UID != string(before.UID) {
		t.Errorf("by its name: %+v, %v", p, ok)
	}
	if p, ok := w.Named(ns, "there-is-none"); ok {
		t.Errorf("by no pod's name: %+v", p)
	}
	elsewhere := server.Pod(t, ns, "elsewhere", other)
	after := server.Pod(t, ns, "after", node)
	known := func(p *corev1.Pod) bool { _, ok := w.Pod(string(p.UID)); return ok }
	testenv.Until(t, "the new pod is known", time.Minute, func() bool { return known(after) })
	if known(elsewhere) {
		t.Error("a pod of another node is known")
	}

	server.DeletePod(t, ns, "after")
	testenv.Until(t, "the deletion is seen", time.Minute, func() bool { return w.Gone() == 1 })
	if !known(after) {
		t.Error("a pod is forgotten as soon as it is deleted")
	}
	again := server.Pod(t, ns, "after", node)
	testenv.Until(t, "the pod of the same name is known", time.Minute, func() bool { return known(again) })
	if !known(after) {
		t.Error("the pod of the same name took its place")
	}
}

// After an outage, the API server may have pods that are newer than the last watch. Before there
// is a new watch, such a pod must not be reported as unknown.
func TestKnownNeedsAWatch(t *testing.T) {
	server := cluster.Server(t)
	node, ns := server.Node(t), server.Namespace(t)
	var road road
	t.Cleanup(road.close) // its transport is shared with no other test, so its connections would stay
	config := server.Admin()
	config.Dial = road.dial
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	whole := &pods.Whole{Client: kubetest.Clientset(t, config), Trim: func(*corev1.Pod) any { return nil }, Listed: func() {}}
	watches := map[string]*pods.Watch{
		"metadata": runWatch(t, pods.WatchConfig{Client: client, Node: node}), "whole pods": runWatch(t, pods.WatchConfig{Node: node, Whole: whole}),
	}
	road.close()
	for of, w := range watches {
		testenv.Until(t, "pods are unknown without a watch: "+of, 10*time.Second, func() bool { return !w.Known(time.Now()) })
	}
	newer := server.Pod(t, ns, "newer", node)
	road.open()
	for of, w := range watches {
		testenv.Until(t, "pods are known again: "+of, 2*time.Minute, func() bool { return w.Known(time.Now()) })
		if _, ok := w.Pod(string(newer.UID)); !ok {
			t.Errorf("%s: all are known but the newest", of)
		}
	}
}

// road is the connection to the API server. While it is closed, connections break and are
// refused.
type road struct {
	mu     sync.Mutex
	closed bool
	used   []net.Conn
}

func (r *road) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		r.used = append(r.used, c)
	}
	return c, err
}

func (r *road) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, c := range r.used {
		c.Close()
	}
}

func (r *road) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = false
}

// nodeOwns returns the owner that kubelet sets in its mirror pods, and that forgers copy.
func nodeOwns() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n", Controller: new(true)}}
}

// kubelet uses the hash of its manifest in the names of a static pod's cgroups and in its Events,
// and kubectl looks for these.
func TestStaticPod(t *testing.T) {
	server := cluster.Server(t)
	node, ns := server.Node(t), server.Namespace(t)
	const hash = "b1946ac92492d2347c6235b4d2611184"
	mirror, err := server.Client().CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + node, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: hash}, OwnerReferences: nodeOwns()},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "none.invalid/none:1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, node)
	for _, uid := range []string{hash, "b1946ac9-2492-d234-7c62-35b4d2611184", string(mirror.UID)} {
		if p, ok := w.Pod(uid); !ok || p.UID != hash || p.Name != mirror.Name {
			t.Errorf("%s: %+v, %v", uid, p, ok)
		}
	}
}

// Anyone who creates a pod with spec.nodeName can claim that it is the mirror of a static pod
// with any UID. Faults in the real pod are still attributed to it, even after its deletion.
func TestForgedMirrors(t *testing.T) {
	server := cluster.Server(t)
	node, ns, theirs := server.Node(t), server.Namespace(t), server.Namespace(t)
	victim := server.Pod(t, ns, "victim", node)
	uid := string(victim.UID)
	for i, claim := range []string{uid, strings.ReplaceAll(uid, "-", ""), uid, strings.ReplaceAll(uid, "-", ""), uid} {
		_, err := server.Client().CoreV1().Pods(theirs).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("forged-%d", i), Annotations: map[string]string{corev1.MirrorPodAnnotationKey: claim}, OwnerReferences: nodeOwns()},
			Spec: corev1.PodSpec{
				NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "none.invalid/none:1"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, node)
	isVictim := func(when string) {
		t.Helper()
		if p, ok := w.Pod(uid); !ok || p.Name != victim.Name || p.Namespace != ns || p.UID != uid {
			t.Errorf("%s: %+v, %v", when, p, ok)
		}
	}
	isVictim("while it is there")
	server.DeletePod(t, ns, victim.Name)
	testenv.Until(t, "the deletion is seen", time.Minute, func() bool { return w.Gone() == 1 })
	isVictim("deleted")
	server.DeletePod(t, theirs, "forged-0")
	testenv.Until(t, "that deletion is seen", time.Minute, func() bool { return w.Gone() == 2 })
	isVictim("deleted, and one of the others after it")
}
