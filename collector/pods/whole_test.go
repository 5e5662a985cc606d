package pods_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/collector/pods"
	"github.com/kernosis/kernosis/collector/probe"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Complete pods are passed once for each change, trimmed, and are known as with metadata.
func TestWholePods(t *testing.T) {
	server := cluster.Server(t)
	node, other, ns := server.Node(t), server.Node(t), server.Namespace(t)
	before := server.Pod(t, ns, "before", node)
	server.Pod(t, ns, "elsewhere", other)
	server.Pod(t, ns, "unwanted", node)
	var mu sync.Mutex
	var reported []string
	report := func(what string) func(any) {
		return func(trimmed any) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, what+" "+trimmed.(string))
		}
	}
	w, err := pods.NewWatch(pods.WatchConfig{Node: node, Whole: &pods.Whole{
		Client: server.Client(),
		Trim: func(p *corev1.Pod) any {
			if p.Name == "unwanted" {
				return nil
			}
			return p.Name + " " + p.Spec.Containers[0].Name + " " + p.Status.PodIP
		},
		Changed: report("changed"), Gone: report("gone"), Listed: func() { report("listed")("all") },
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	hears := func(want ...string) {
		t.Helper()
		testenv.Until(t, "the report", time.Minute, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(reported) >= len(want)
		})
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(reported, want) {
			t.Errorf("reported %q, want %q", reported, want)
		}
		reported = nil
	}
	hears("changed before main ", "listed all")
	if p, ok := w.Pod(string(before.UID)); !ok || p.Name != "before" || p.Labels["app"] != "before" {
		t.Errorf("%+v, %v", p, ok)
	}
	before.Status.PodIP, before.Status.PodIPs = "10.1.2.3", []corev1.PodIP{{IP: "10.1.2.3"}}
	if _, err := server.Client().CoreV1().Pods(ns).UpdateStatus(t.Context(), before, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	hears("changed before main 10.1.2.3")
	server.DeletePod(t, ns, "before")
	// The beginning of its deletion is a separate change.
	testenv.Until(t, "report of the end", time.Minute, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(reported) > 0 && reported[len(reported)-1] == "gone before main 10.1.2.3"
	})
	if p, ok := w.Pod(string(before.UID)); !ok || p.Name != "before" {
		t.Errorf("forgotten: %+v, %v", p, ok)
	}
	if p, ok := w.Named(ns, "unwanted"); !ok || p.Name != "unwanted" {
		t.Errorf("what nobody wants whole is not known: %+v, %v", p, ok)
	}
}

// Anyone who creates a pod with spec.nodeName can claim that it is the mirror of a static pod.
// Users that identify pods by UID, such as the observer of probes, must keep the real one when a
// forged one comes, changes and goes.
func TestForgedMirrorsOfWholePods(t *testing.T) {
	server := cluster.Server(t)
	node, ns, theirs := server.Node(t), server.Namespace(t), server.Namespace(t)
	const hash = "b1946ac92492d2347c6235b4d2611185"
	forge := func(namespace, name, claim string) {
		t.Helper()
		_, err := server.Client().CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: claim}, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node, UID: "n"},
			}},
			Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "main", Image: "none.invalid/none:1"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	victim := server.Pod(t, ns, "victim", node)
	forge(ns, "static", hash) // kubelet's own
	var mu sync.Mutex
	known := map[string]string{} // as collector/probe has them
	w, err := pods.NewWatch(pods.WatchConfig{Node: node, Whole: &pods.Whole{
		Client: server.Client(),
		Trim: func(p *corev1.Pod) any {
			probed, err := pods.Convert(p)
			if err != nil {
				t.Error(err)
			}
			return probed
		},
		Changed: func(o any) {
			mu.Lock()
			defer mu.Unlock()
			known[o.(*probe.Pod).UID] = o.(*probe.Pod).Name
		},
		Gone: func(o any) {
			mu.Lock()
			defer mu.Unlock()
			delete(known, o.(*probe.Pod).UID)
		},
		Listed: func() {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	check := func(when string) {
		t.Helper()
		// Once this pod was passed on, all earlier changes were too.
		last := server.Pod(t, ns, "last-"+strings.ReplaceAll(when, " ", "-"), node)
		testenv.Until(t, "the last pod", time.Minute, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return known[string(last.UID)] != ""
		})
		mu.Lock()
		defer mu.Unlock()
		if known[string(victim.UID)] != "victim" || known[hash] != "static" {
			t.Errorf("%s: the victim's UID is %q's, the static pod's %q's", when, known[string(victim.UID)], known[hash])
		}
	}
	check("at first")
	// Creation times are in whole seconds.
	testenv.Until(t, "the next second", time.Minute, func() bool { return time.Now().Unix() > victim.CreationTimestamp.Unix()+1 })
	forge(theirs, "forged", string(victim.UID))
	forge(theirs, "forged-static", hash)
	check("forged")
	server.DeletePod(t, theirs, "forged")
	server.DeletePod(t, theirs, "forged-static")
	check("gone again")
}
