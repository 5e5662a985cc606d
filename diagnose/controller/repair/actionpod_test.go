package repair

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func of(p *corev1.Pod) map[string]string {
	return map[string]string{"podNamespace": p.Namespace, "podName": p.Name, "podUID": string(p.UID)}
}

func TestEvictPod(t *testing.T) {
	b := newActionBench(t)
	p := b.pod(b.shop, "db-0", nil)
	c := b.call("evict-pod", "d1", of(p))
	b.allows(c)
	first := b.does(c, v1alpha1.ResultRunning, "is terminating")
	if !b.ending(b.shop, "db-0") || first.Again <= 0 {
		t.Errorf("%+v", first)
	}
	b.does(again(c, first), v1alpha1.ResultRunning, "is terminating")
	b.gone(b.shop, "db-0")
	if p := b.does(again(c, first), v1alpha1.ResultSucceeded, "is gone"); p.Values["pod"] != b.shop+"/db-0" {
		t.Errorf("%+v", p)
	}
	// It was gone before anything was done.
	b.refuses(c, "is gone")
	b.does(c, v1alpha1.ResultFailed, "was gone before")
}

func TestAPodDisruptionBudgetIsRespected(t *testing.T) {
	b := newActionBench(t)
	p := b.pod(b.shop, "web", nil)
	b.budget("web")
	c := b.call("evict-pod", "d1", of(p))
	waits := b.does(c, v1alpha1.ResultRunning, "disruption budget")
	b.now = b.now.Add(5*time.Minute - time.Second)
	b.does(again(c, waits), v1alpha1.ResultRunning, "disruption budget")
	b.now = b.now.Add(time.Second)
	b.does(again(c, waits), v1alpha1.ResultFailed, "not done after 5m0s: pod "+b.shop+"/web: Cannot evict pod")
	if b.ending(b.shop, "web") {
		t.Error("it was evicted")
	}
	// Deleting is another operation.
	b.now = time.Now()
	b.does(b.call("delete-pod", "d1", of(p)), v1alpha1.ResultRunning, "is terminating")
	if !b.ending(b.shop, "web") {
		t.Error("it was not deleted")
	}
}

func TestPodsThatAreNotEnded(t *testing.T) {
	b := newActionBench(t)
	elsewhere := b.server.Node(t)
	other := b.pod(b.shop, "other", func(p *corev1.Pod) { p.Spec.NodeName = elsewhere })
	unbound := b.pod(b.shop, "unbound", func(p *corev1.Pod) { p.Spec.NodeName = "" })
	mirror := b.pod(b.shop, "static", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		node := b.node()
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes}}
	})
	agent := b.pod(b.system, "agent", func(p *corev1.Pod) { p.Labels["app.kubernetes.io/name"] = "kernosis" })
	imitator := b.pod(b.shop, "imitator", func(p *corev1.Pod) { p.Labels["app.kubernetes.io/name"] = "kernosis" })
	fine := b.pod(b.shop, "fine", nil)
	for _, builtin := range []string{"evict-pod", "delete-pod"} {
		b.refuses(b.call(builtin, "d1", of(other)), "is on node "+elsewhere+", not on the Diagnosis' node "+b.name)
		b.refuses(b.call(builtin, "d1", of(unbound)), "is on no node")
		b.refuses(b.call(builtin, "d1", of(mirror)), "is static")
		b.refuses(b.call(builtin, "d1", of(agent)), "belongs to Kernosis itself")
		b.allows(b.call(builtin, "d1", of(imitator)))
		b.allows(b.call(builtin, "d1", of(fine)))
		about := b.call(builtin, "d1", of(fine))
		about.Diagnosis.Spec.PodReference = &v1alpha1.PodReference{Namespace: b.shop, Name: "another"}
		b.refuses(about, "the Diagnosis is about pod "+b.shop+"/another")
		for _, c := range []*Call{b.call(builtin, "d1", of(other)), b.call(builtin, "d1", of(mirror)), b.call(builtin, "d1", of(agent)), about} {
			b.does(c, v1alpha1.ResultFailed, "pod")
		}
	}
	for _, p := range []*corev1.Pod{other, unbound, mirror, agent, fine} {
		if b.ending(p.Namespace, p.Name) {
			t.Errorf("%s was ended", p.Name)
		}
	}
}

func TestAPodThatWasMadeAnew(t *testing.T) {
	b := newActionBench(t)
	was := b.pod(b.shop, "db-0", nil)
	c := b.call("evict-pod", "d1", of(was))
	b.gone(b.shop, "db-0")
	b.pod(b.shop, "db-0", nil)
	b.refuses(c, "was recreated")
	b.does(c, v1alpha1.ResultFailed, "was recreated")
	if b.ending(b.shop, "db-0") {
		t.Error("it was evicted")
	}
	// The pod ended while the eviction was under way.
	b.does(again(c, Progress{Message: "x"}), v1alpha1.ResultSucceeded, "is gone")
	// Without a UID the pod must be older than the Diagnosis.
	blind := b.call("evict-pod", "d1", map[string]string{"podNamespace": b.shop, "podName": "db-0"})
	blind.Diagnosis.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	node := b.node()
	blind.Diagnosis.Spec.NodeName = node.Name
	b.refuses(blind, "was recreated")
	b.allows(b.call("evict-pod", "d1", map[string]string{"podNamespace": b.shop, "podName": "db-0"}))
}

// The pod is recreated between the read and the eviction: the server rejects it because of the UID.
func TestThePodThatWasLookedAtAndNoOther(t *testing.T) {
	b := newActionBench(t)
	was := b.pod(b.shop, "db-0", nil)
	b.gone(b.shop, "db-0")
	b.pod(b.shop, "db-0", nil)
	for _, builtin := range []string{"evict-pod", "delete-pod", "drain"} {
		given := of(was)
		if builtin == "drain" {
			given = nil
		}
		gone, blocked, err := b.actions.end(t.Context(), b.call(builtin, "d1", given), was)
		if gone || blocked == "" || err != nil {
			t.Errorf("%s: %v %q %v", builtin, gone, blocked, err)
		}
	}
	if b.ending(b.shop, "db-0") {
		t.Error("it was ended")
	}
}
