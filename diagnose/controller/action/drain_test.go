package action

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "DaemonSet", "ds"
}

func (b *bench) static(p *corev1.Pod) {
	yes := true
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: b.name, UID: b.node().UID, Controller: &yes}}
}

func TestDrain(t *testing.T) {
	b := newBench(t)
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
	p := b.does(c, v1alpha1.ResultRunning, "2 of the pods of node "+b.name+" are left")
	if n := b.node(); !n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != `[{"diagnosis":"d1"}]` {
		t.Errorf("%+v", n)
	}
	if !b.ending(b.shop, "a") || !b.ending(b.shop, "b") || b.ending(b.shop, "ds") || b.ending(b.shop, "static") || b.ending(b.system, "controller") {
		t.Error("other pods than a and b, or not both, were evicted")
	}
	b.gone(b.shop, "a")
	p = b.does(again(c, p), v1alpha1.ResultRunning, "1 of the pods")
	b.gone(b.shop, "b")
	p = b.does(again(c, p), v1alpha1.ResultSucceeded, "cordoned and drained; staying: 1 of DaemonSets, 1 static, 1 of Kernosis")
	if p.Values["evicted"] != "2" {
		t.Errorf("%+v", p)
	}
	// The controller died between the last look and its word.
	b.does(again(c, p), v1alpha1.ResultSucceeded, "drained")
}

func TestDrainRefusesBeforeItEvicts(t *testing.T) {
	b := newBench(t)
	b.pod(b.shop, "a", nil)
	b.pod(b.shop, "ds", ofDaemonSet)
	b.pod(b.shop, "bare", func(p *corev1.Pod) { p.OwnerReferences = nil })
	b.pod(b.shop, "data", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	c := b.call("drain", "d1", nil)
	b.refuses(c, "with an emptyDir, whose data would go (deleteEmptyDirData): "+b.shop+"/data; and pods that nobody would make anew (force): "+b.shop+"/bare")
	b.refuses(b.call("drain", "d1", map[string]string{"ignoreDaemonSets": "false", "force": "true", "deleteEmptyDirData": "true"}), "of DaemonSets, and ignoreDaemonSets is false: "+b.shop+"/ds")
	if b.ending(b.shop, "a") || b.node().Spec.Unschedulable {
		t.Error("something was done")
	}
	c = b.call("drain", "d1", map[string]string{"force": "true", "deleteEmptyDirData": "true", "gracePeriod": "1s"})
	b.allows(c)
	b.does(c, v1alpha1.ResultRunning, "3 of the pods")
	p, err := b.api.CoreV1().Pods(b.shop).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 1 {
		t.Errorf("%+v %v", p, err)
	}
}

func TestDrainThatIsBlocked(t *testing.T) {
	b := newBench(t)
	b.pod(b.shop, "a", nil)
	b.pod(b.shop, "web", nil)
	b.budget("web")
	c := b.call("drain", "d1", map[string]string{"timeout": "1m"})
	p := b.does(c, v1alpha1.ResultRunning, "web: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently")
	b.gone(b.shop, "a")
	b.now = b.now.Add(time.Minute)
	p = b.does(again(c, p), v1alpha1.ResultFailed, "not done after 1m0s: 1 of the pods of node "+b.name+" are left: "+b.shop+"/web")
	if p.Values["evicted"] != "1" || b.ending(b.shop, "web") || !b.node().Spec.Unschedulable {
		t.Errorf("%+v", p)
	}
}

// Who uncordons a node that is being drained wants its pods to stay.
func TestDrainEndsWhereItIsUncordoned(t *testing.T) {
	b := newBench(t)
	b.pod(b.shop, "a", nil)
	c := b.call("drain", "d1", nil)
	// The controller died before it had done anything.
	p := b.does(again(c, Progress{}), v1alpha1.ResultRunning, "1 of the pods")
	b.gone(b.shop, "a")
	b.pod(b.shop, "late", nil)
	b.patch(`{"spec":{"unschedulable":null}}`)
	b.does(again(c, p), v1alpha1.ResultFailed, "was uncordoned while it was being drained")
	if b.ending(b.shop, "late") || b.node().Spec.Unschedulable {
		t.Error("the drain has gone on")
	}
}

// Messages stay the same while what they say does: each other one is a write.
func TestDrainsMessageDoesNotTick(t *testing.T) {
	b := newBench(t)
	b.pod(b.shop, "web", nil)
	b.budget("web")
	c := b.call("drain", "d1", nil)
	p := b.does(c, v1alpha1.ResultRunning, "disruption budget")
	b.now = b.now.Add(17 * time.Second)
	if q := b.does(again(c, p), v1alpha1.ResultRunning, "disruption budget"); q.Message != p.Message || strings.Contains(q.Message, "17") {
		t.Errorf("%q, then %q", p.Message, q.Message)
	}
}
