package repair

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "DaemonSet", "ds"
}

func (b *actionBench) static(p *corev1.Pod) {
	yes := true
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: b.name, UID: b.node().UID, Controller: &yes}}
}

func TestDrain(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	b.pod(b.shop, "b", nil)
	b.pod(b.shop, "ds", ofDaemonSet)
	b.pod(b.shop, "static", b.static)
	b.pod(b.system, "controller", func(p *corev1.Pod) {
		p.Labels["app.kubernetes.io/name"] = "kernosis"
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	c := b.call("drain", "d1", nil)
	b.allows(c)
	p := b.does(c, v1alpha1.ResultRunning, "2 pod(s) left on node "+b.name)
	if n := b.node(); !n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != `[{"diagnosis":"d1"}]` {
		t.Errorf("%+v", n)
	}
	if !b.ending(b.shop, "a") || !b.ending(b.shop, "b") || b.ending(b.shop, "ds") || b.ending(b.shop, "static") || b.ending(b.system, "controller") {
		t.Error("other pods than a and b, or not both, were evicted")
	}
	b.gone(b.shop, "a")
	p = b.does(again(c, p), v1alpha1.ResultRunning, "1 pod(s) left")
	b.gone(b.shop, "b")
	p = b.does(again(c, p), v1alpha1.ResultSucceeded, "cordoned and drained; left in place: 1 of DaemonSets, 1 static, 1 of Kernosis")
	if p.Values["evicted"] != "2" {
		t.Errorf("%+v", p)
	}
	// The controller died between the last list and recording the result.
	b.does(again(c, p), v1alpha1.ResultSucceeded, "drained")
}

// Each Diagnosis marks the cordon as its own. However many have, a node can be drained.
func TestDrainOfANodeWithManyCordons(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	for i := range 33 {
		b.does(b.call("cordon", fmt.Sprint("d", i), nil), v1alpha1.ResultSucceeded, "is cordoned")
	}
	b.does(b.call("drain", "d33", nil), v1alpha1.ResultRunning, "1 pod(s) left")
	if !b.ending(b.shop, "a") {
		t.Error("the pod was not evicted")
	}
	b.does(b.call("uncordon", "d33", map[string]string{"of": "all"}), v1alpha1.ResultSucceeded, "cordon reverted")
}

func TestDrainRefusesBeforeItEvicts(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	b.pod(b.shop, "ds", ofDaemonSet)
	b.pod(b.shop, "bare", func(p *corev1.Pod) { p.OwnerReferences = nil })
	b.pod(b.shop, "data", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	c := b.call("drain", "d1", nil)
	b.refuses(c, "with an emptyDir, whose data would be lost (set deleteEmptyDirData): "+b.shop+"/data; and pods that nothing would recreate (set force): "+b.shop+"/bare")
	b.refuses(b.call("drain", "d1", map[string]string{"ignoreDaemonSets": "false", "force": "true", "deleteEmptyDirData": "true"}), "of DaemonSets, and ignoreDaemonSets is false: "+b.shop+"/ds")
	if b.ending(b.shop, "a") || b.node().Spec.Unschedulable {
		t.Error("something was done")
	}
	c = b.call("drain", "d1", map[string]string{"force": "true", "deleteEmptyDirData": "true", "gracePeriod": "1s"})
	b.allows(c)
	b.does(c, v1alpha1.ResultRunning, "3 pod(s) left")
	p, err := b.api.CoreV1().Pods(b.shop).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 1 {
		t.Errorf("%+v %v", p, err)
	}
}

func TestDrainThatIsBlocked(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	b.pod(b.shop, "web", nil)
	b.budget("web")
	c := b.call("drain", "d1", map[string]string{"timeout": "1m"})
	p := b.does(c, v1alpha1.ResultRunning, "web: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently")
	b.gone(b.shop, "a")
	b.now = b.now.Add(time.Minute)
	p = b.does(again(c, p), v1alpha1.ResultFailed, "not done after 1m0s: 1 pod(s) left on node "+b.name+": "+b.shop+"/web")
	if p.Values["evicted"] != "1" || b.ending(b.shop, "web") || !b.node().Spec.Unschedulable {
		t.Errorf("%+v", p)
	}
}

// Pods of others in the namespace of Kernosis can't be evicted. Ended ones may stay.
func TestDrainOfTheNamespaceOfKernosis(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	b.pod(b.system, "ds", ofDaemonSet)
	job := b.pod(b.system, "job", nil)
	job.Status.Phase = corev1.PodSucceeded
	if _, err := b.api.CoreV1().Pods(b.system).UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.allows(b.call("drain", "d1", nil))
	b.pod(b.system, "dns", nil)
	c := b.call("drain", "d1", map[string]string{"force": "true"})
	b.refuses(c, "in the namespace of Kernosis, where pods are never evicted or deleted (install Kernosis in a namespace of its own): "+b.system+"/dns")
	b.gone(b.system, "dns")
	p := b.does(c, v1alpha1.ResultRunning, "1 pod(s) left")
	b.gone(b.shop, "a")
	b.does(again(c, p), v1alpha1.ResultSucceeded, "left in place: 1 of DaemonSets")
	if b.ending(b.system, "job") {
		t.Error("a pod that is over was ended")
	}
}

// Somebody who uncordons a node that is being drained wants its pods to stay.
func TestDrainEndsWhereItIsUncordoned(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	c := b.call("drain", "d1", nil)
	// The controller died before it had done anything.
	p := b.does(again(c, Progress{}), v1alpha1.ResultRunning, "1 pod(s) left")
	b.gone(b.shop, "a")
	b.pod(b.shop, "late", nil)
	b.patch(`{"spec":{"unschedulable":null}}`)
	b.does(again(c, p), v1alpha1.ResultFailed, "was uncordoned while it was being drained")
	if b.ending(b.shop, "late") || b.node().Spec.Unschedulable {
		t.Error("the drain has gone on")
	}
}

// Messages don't change while their facts don't, because each change is a write.
func TestDrainsMessageDoesNotTick(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "web", nil)
	b.budget("web")
	c := b.call("drain", "d1", nil)
	p := b.does(c, v1alpha1.ResultRunning, "disruption budget")
	b.now = b.now.Add(17 * time.Second)
	if q := b.does(again(c, p), v1alpha1.ResultRunning, "disruption budget"); q.Message != p.Message || strings.Contains(q.Message, "17") {
		t.Errorf("%q, then %q", p.Message, q.Message)
	}
}

// A namespace that is being deleted accepts no evictions. Its pods are deleted one by one, and the
// drain waits for that.
func TestDrainOfATerminatingNamespace(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	other := b.server.Namespace(t)
	b.pod(other, "b", nil)
	// No namespace controller runs here, so it stays like this until the test deletes the pods.
	if err := b.api.CoreV1().Namespaces().Delete(t.Context(), b.shop, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if ns, err := b.api.CoreV1().Namespaces().Get(t.Context(), b.shop, metav1.GetOptions{}); err != nil || ns.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("%+v, %v", ns, err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: b.shop, Name: "a"}}
	if err := b.api.PolicyV1().Evictions(b.shop).Evict(t.Context(), eviction); !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Fatalf("the API server's answer is another: %v", err)
	}
	c := b.call("drain", "d1", nil)
	b.allows(c)
	p := b.does(c, v1alpha1.ResultRunning, b.shop+"/a: its namespace is being deleted")
	if b.ending(b.shop, "a") || !b.ending(other, "b") || p.Values["evicted"] != "1" {
		t.Errorf("%+v", p)
	}
	b.gone(other, "b")
	// Simulates the namespace controller deleting the pod, which takes its time to end.
	if err := b.api.CoreV1().Pods(b.shop).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p = b.does(again(c, p), v1alpha1.ResultRunning, b.shop+"/a is terminating")
	b.gone(b.shop, "a")
	b.does(again(c, p), v1alpha1.ResultSucceeded, "drained")
}

func TestEvictionInATerminatingNamespace(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	if err := b.api.CoreV1().Namespaces().Delete(t.Context(), b.shop, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	given := map[string]string{"podNamespace": b.shop, "podName": "a"}
	b.does(b.call("evict-pod", "d1", given), v1alpha1.ResultRunning, "its namespace is being deleted")
	b.does(b.call("delete-pod", "d2", given), v1alpha1.ResultRunning, "is terminating")
}

// Pods that arrive on the node during a drain are evicted too: recreated ones that tolerate a
// cordoned node, and those that were bound late.
func TestDrainOfPodsThatComeLater(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "a", nil)
	c := b.call("drain", "d1", nil)
	p := b.does(c, v1alpha1.ResultRunning, "1 pod(s) left")
	b.gone(b.shop, "a")
	b.pod(b.shop, "a-again", nil)
	p = b.does(again(c, p), v1alpha1.ResultRunning, b.shop+"/a-again is terminating")
	if !b.ending(b.shop, "a-again") || p.Values["evicted"] != "2" {
		t.Errorf("%+v", p)
	}
	b.gone(b.shop, "a-again")
	// It appears only after the pass's first list, which may be stale: the drain lists once more
	// before it reports success.
	proxy, to := kubetest.NewProxy(t, b.server, b.server.Admin())
	b.through(to)
	late := false
	proxy.Do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("resourceVersion") == "" && !late {
			late = true
			b.pod(b.shop, "late", nil)
		}
		return false
	})
	p = b.does(again(c, p), v1alpha1.ResultRunning, b.shop+"/late is terminating")
	b.gone(b.shop, "late")
	b.does(again(c, p), v1alpha1.ResultSucceeded, "drained")
}

// While a drain waits, it spares API servers that read all pods of the cluster to list a node's:
// they answer from their cache, and are asked less and less often.
func TestWhatADrainAsks(t *testing.T) {
	b := newActionBench(t)
	b.pod(b.shop, "web", nil)
	b.budget("web")
	proxy, to := kubetest.NewProxy(t, b.server, b.server.Admin())
	b.through(to)
	var fresh, cached atomic.Int32
	proxy.Do(func(_ http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		switch {
		case r.URL.Path != "/api/v1/pods":
		case q.Get("fieldSelector") != "spec.nodeName="+b.name:
			t.Errorf("not only of the node: %s", r.URL)
		case q.Get("resourceVersion") == "0":
			cached.Add(1)
		default:
			fresh.Add(1)
		}
		return false
	})
	c := b.call("drain", "d1", map[string]string{"timeout": "10m"})
	p := b.does(c, v1alpha1.ResultRunning, "disruption budget")
	var pauses []time.Duration
	for b.now.Sub(c.Began) < 9*time.Minute {
		pauses = append(pauses, p.Again)
		b.now = b.now.Add(p.Again)
		p = b.does(again(c, p), v1alpha1.ResultRunning, "disruption budget")
	}
	if fresh.Load() != 1 || int(cached.Load()) != len(pauses) || len(pauses) > 30 {
		t.Errorf("%d fresh lists and %d of the cache in %d passes", fresh.Load(), cached.Load(), len(pauses)+1)
	}
	if pauses[0] != 5*time.Second || pauses[len(pauses)-1] != 30*time.Second || !slices.IsSorted(pauses) {
		t.Errorf("%v", pauses)
	}
	if err := b.api.PolicyV1().PodDisruptionBudgets(b.shop).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the pod may go", time.Minute, func() bool {
		p = b.does(again(c, p), v1alpha1.ResultRunning, "web")
		return b.ending(b.shop, "web")
	})
	b.gone(b.shop, "web")
	before := fresh.Load()
	b.does(again(c, p), v1alpha1.ResultSucceeded, "drained")
	if n := fresh.Load() - before; n != 1 {
		t.Errorf("%d fresh lists at the end", n)
	}
}
