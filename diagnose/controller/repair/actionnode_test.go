package repair

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/policy"
)

func TestCordonAndUncordon(t *testing.T) {
	b := newActionBench(t)
	b.allows(b.call("cordon", "d1", nil))
	if p := b.does(b.call("cordon", "d1", nil), v1alpha1.ResultSucceeded, "is cordoned"); p.Values["changed"] != "true" {
		t.Errorf("%+v", p)
	}
	n := b.node()
	if !n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != `[{"diagnosis":"d1"}]` {
		t.Errorf("%+v", n)
	}
	// Again, by another process.
	b.does(again(b.call("cordon", "d1", nil), Progress{}), v1alpha1.ResultSucceeded, "is cordoned")
	b.does(b.call("cordon", "d2", nil), v1alpha1.ResultSucceeded, "is cordoned")
	b.does(b.call("uncordon", "d1", nil), v1alpha1.ResultSucceeded, "another Diagnosis requested it")
	if !b.node().Spec.Unschedulable {
		t.Error("d2's cordon is gone")
	}
	b.does(b.call("uncordon", "d2", nil), v1alpha1.ResultSucceeded, "cordon reverted")
	if n := b.node(); n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != "" {
		t.Errorf("%+v", n)
	}
	// A Diagnosis that is gone has left a cordon.
	b.does(b.call("cordon", "d3", nil), v1alpha1.ResultSucceeded, "is cordoned")
	b.does(b.call("uncordon", "d4", map[string]string{"of": "all"}), v1alpha1.ResultSucceeded, "cordon reverted")
	if b.node().Spec.Unschedulable {
		t.Error("it is cordoned")
	}
}

func TestACordonOfAPersonIsLeftAlone(t *testing.T) {
	b := newActionBench(t)
	b.patch(`{"spec":{"unschedulable":true}}`)
	if p := b.does(b.call("cordon", "d1", nil), v1alpha1.ResultSucceeded, "by somebody else"); p.Values["changed"] != "false" {
		t.Errorf("%+v", p)
	}
	for _, of := range []string{"self", "all"} {
		b.does(b.call("uncordon", "d1", map[string]string{"of": of}), v1alpha1.ResultSucceeded, "no cordon of Kernosis")
	}
	if n := b.node(); !n.Spec.Unschedulable || n.Annotations[policy.AnnotationActs] != "" {
		t.Errorf("%+v", n)
	}
}

func TestTaint(t *testing.T) {
	b := newActionBench(t)
	b.patch(`{"spec":{"taints":[{"key":"theirs","value":"x","effect":"NoSchedule"}]}}`)
	b.does(b.call("taint", "d1", map[string]string{"value": "disk"}), v1alpha1.ResultSucceeded, "kernosis.io/problem=disk:NoSchedule")
	b.does(b.call("taint", "d1", map[string]string{"key": "theirs", "value": "x"}), v1alpha1.ResultSucceeded, "by somebody else")
	b.does(b.call("taint", "d1", map[string]string{"key": "theirs", "value": "y"}), v1alpha1.ResultFailed, "already has another value")
	b.does(b.call("cordon", "d1", nil), v1alpha1.ResultSucceeded, "is cordoned")
	b.does(b.call("untaint", "d1", map[string]string{"key": "theirs"}), v1alpha1.ResultSucceeded, "no taint theirs:NoSchedule of Kernosis")
	b.does(b.call("untaint", "d1", nil), v1alpha1.ResultSucceeded, "reverted")
	n := b.node()
	// The cordon is another act and stays; no admission plugin adds a taint for it here.
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "theirs" || !n.Spec.Unschedulable {
		t.Errorf("%+v", n.Spec)
	}
	b.refuses(b.call("taint", "d1", map[string]string{"key": "node.kubernetes.io/not-ready"}), "a domain reserved by Kubernetes")
	b.refuses(b.call("taint", "d1", map[string]string{"key": "a b"}), "key")
	b.refuses(b.call("taint", "d1", map[string]string{"value": "a b"}), "value")
}

func TestLabelAndAnnotation(t *testing.T) {
	b := newActionBench(t)
	for _, builtin := range []string{"label-node", "annotate-node"} {
		for _, key := range []string{"kubernetes.io/os", "node.kubernetes.io/x", "x.k8s.io/y", policy.AnnotationActs, "sub.kernosis.io/y", "node-role.kubernetes.io/control-plane"} {
			b.refuses(b.call(builtin, "d1", map[string]string{"key": key, "value": "x"}), "domain")
		}
		c := b.call(builtin, "d1", map[string]string{"key": "example.org/state", "value": "sick"})
		b.allows(c)
		b.does(c, v1alpha1.ResultSucceeded, "example.org/state=sick")
		if p := b.does(c, v1alpha1.ResultSucceeded, "example.org/state=sick"); p.Values["changed"] != "false" {
			t.Errorf("%+v", p)
		}
		// The write succeeded, and the controller died.
		b.does(again(c, Progress{}), v1alpha1.ResultSucceeded, "example.org/state=sick")
	}
	b.allows(b.call("label-node", "d1", map[string]string{"key": policy.AllowedLabel}))
	b.refuses(b.call("label-node", "d1", map[string]string{"key": policy.AllowedAnnotation}), "domain")
	b.allows(b.call("annotate-node", "d1", map[string]string{"key": policy.AllowedAnnotation, "value": "true"}))
	n := b.node()
	if n.Labels["example.org/state"] != "sick" || n.Annotations["example.org/state"] != "sick" {
		t.Errorf("%+v", n.ObjectMeta)
	}
}

// What label-node and annotate-node have set is undone once, and only while it is still in force;
// the node's previous value is restored.
func TestLabelAndAnnotationAreTakenBack(t *testing.T) {
	b := newActionBench(t)
	for _, kind := range []struct{ do, undo, field string }{{"label-node", "unlabel-node", "labels"}, {"annotate-node", "unannotate-node", "annotations"}} {
		const key = "example.org/state"
		value := func() string {
			n := b.node()
			have, ok := map[string]map[string]string{"labels": n.Labels, "annotations": n.Annotations}[kind.field][key]
			if !ok {
				return "-"
			}
			return have
		}
		is := func(want string, marked bool) {
			t.Helper()
			if have := value(); have != want {
				t.Errorf("%s: %q, want %q", kind.do, have, want)
			}
			if text := b.node().Annotations[policy.AnnotationActs]; (text != "") != marked {
				t.Errorf("%s: marks %q", kind.do, text)
			}
		}
		person := func(value string) { b.patch(`{"metadata":{"` + kind.field + `":{"` + key + `":` + value + `}}}`) }
		set := func(uid, value string) *Call {
			return b.call(kind.do, uid, map[string]string{"key": key, "value": value})
		}
		undo := func(uid, of string) *Call { return b.call(kind.undo, uid, map[string]string{"key": key, "of": of}) }

		// Nothing was there before.
		b.does(set("d1", "sick"), v1alpha1.ResultSucceeded, key+"=sick")
		is("sick", true)
		b.allows(undo("d1", "self"))
		b.does(undo("d2", "self"), v1alpha1.ResultSucceeded, "another Diagnosis requested it")
		is("sick", true)
		if p := b.does(undo("d1", "self"), v1alpha1.ResultSucceeded, "reverted"); p.Values["changed"] != "true" {
			t.Errorf("%+v", p)
		}
		is("-", false)

		// The previous value is restored once; a person's later value stays.
		person(`"fine"`)
		b.does(set("d1", "sick"), v1alpha1.ResultSucceeded, key+"=sick")
		b.does(set("d2", "worse"), v1alpha1.ResultSucceeded, key+"=worse") // another Diagnosis
		b.does(undo("d1", "self"), v1alpha1.ResultSucceeded, "another Diagnosis requested it")
		is("worse", true)
		b.does(undo("d2", "self"), v1alpha1.ResultSucceeded, "reverted")
		is("fine", false)
		if p := b.does(undo("d2", "self"), v1alpha1.ResultSucceeded, "of Kernosis to revert"); p.Values["changed"] != "false" {
			t.Errorf("%+v", p)
		}
		is("fine", false)

		// A person changes it meanwhile.
		b.does(set("d1", "sick"), v1alpha1.ResultSucceeded, key+"=sick")
		person(`"mine"`)
		b.does(undo("d1", "all"), v1alpha1.ResultSucceeded, "of Kernosis to revert")
		is("mine", false)
		// A person removes it.
		b.does(set("d1", "sick"), v1alpha1.ResultSucceeded, key+"=sick")
		person(`null`)
		b.does(undo("d1", "self"), v1alpha1.ResultSucceeded, "of Kernosis to revert")
		is("-", false)
		// It had this value before.
		person(`"sick"`)
		b.does(set("d1", "sick"), v1alpha1.ResultSucceeded, "by somebody else")
		b.does(undo("d1", "all"), v1alpha1.ResultSucceeded, "of Kernosis to revert")
		is("sick", false)
		// Undo for a Diagnosis that is gone.
		b.does(set("d3", "worse"), v1alpha1.ResultSucceeded, key+"=worse")
		b.does(undo("d4", "all"), v1alpha1.ResultSucceeded, "reverted")
		is("sick", false)
		b.refuses(b.call(kind.undo, "d1", map[string]string{"key": "kubernetes.io/os"}), "domain")
	}
}

// It is unknown whether the annotation was ever set: whoever reboots nodes because of it may have
// acted on it.
func TestASignalThatIsGoneIsNotGivenAgain(t *testing.T) {
	b := newActionBench(t)
	c := b.call("annotate-node", "d1", map[string]string{"key": "example.org/reboot", "value": "now"})
	b.does(again(c, Progress{}), v1alpha1.ResultUnknown, "is not set again")
	if _, ok := b.node().Annotations["example.org/reboot"]; ok {
		t.Error("it was set again")
	}
}

func TestNodeThatIsNotTheDiagnosis(t *testing.T) {
	b := newActionBench(t)
	c := b.call("cordon", "d1", nil)
	c.Diagnosis.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	b.refuses(c, "recreated after the Diagnosis")
	b.does(c, v1alpha1.ResultFailed, "recreated after the Diagnosis")
	c = b.call("cordon", "d1", nil)
	c.Diagnosis.Spec.NodeName = "no-such"
	b.refuses(c, "there is no node no-such")
	b.patch(`{"metadata":{"annotations":{"kernosis.io/acts":"garbage"}}}`)
	b.refuses(b.call("cordon", "d1", nil), "annotation kernosis.io/acts")
	b.does(b.call("cordon", "d1", nil), v1alpha1.ResultFailed, "annotation kernosis.io/acts")
	if b.node().Spec.Unschedulable {
		t.Error("it was cordoned")
	}
}

// Kubelet and others write the node all the time: neither their changes nor ours are lost.
func TestWritesOfOthersAreKept(t *testing.T) {
	b := newActionBench(t)
	var others sync.WaitGroup
	others.Go(func() {
		for i := range 50 {
			b.patch(`{"metadata":{"labels":{"other":"` + string(rune('a'+i%26)) + `"}}}`)
		}
	})
	var acts sync.WaitGroup
	for _, uid := range []string{"d1", "d2", "d3", "d4"} {
		acts.Go(func() { b.does(b.call("cordon", uid, nil), v1alpha1.ResultSucceeded, "is cordoned") })
		acts.Go(func() {
			b.does(b.call("taint", uid, map[string]string{"key": "k-" + uid}), v1alpha1.ResultSucceeded, "has the taint")
		})
	}
	acts.Wait()
	others.Wait()
	n := b.node()
	got, _, err := policy.Acts(n)
	// Admission has added a taint to each new node.
	if err != nil || len(got) != 8 || len(n.Spec.Taints) != 5 || n.Labels["other"] == "" {
		t.Errorf("%v %+v %v", got, n.Spec, err)
	}
	if n.Labels[corev1.LabelHostname] != b.name {
		t.Errorf("%+v", n.Labels)
	}
}

func TestGentle(t *testing.T) {
	for builtin, want := range map[string]bool{
		"cordon": true, "uncordon": true, "untaint": true, "drain": false, "evict-pod": false, "delete-pod": false, "label-node": false,
		"annotate-node": false, "restart-unit": false, "": false, "taint": false,
	} {
		if gentle(builtin, nil) != want {
			t.Errorf("%s: %v", builtin, !want)
		}
	}
	if !gentle("taint", map[string]string{"effect": "NoSchedule"}) || gentle("taint", map[string]string{"effect": "NoExecute"}) {
		t.Error("taint")
	}
}
