package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/policy"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func taint(key, value string) *corev1.Taint {
	return &corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

func do(t *testing.T, n *corev1.Node, a policy.Act, want bool) {
	t.Helper()
	changed, err := policy.Do(n, a)
	if err != nil || changed != want {
		t.Fatalf("%s: changed %v, %v", a, changed, err)
	}
}

func ofDiagnosis(uid types.UID) func(policy.Act) bool {
	return func(a policy.Act) bool { return a.Diagnosis == uid }
}

func undo(t *testing.T, n *corev1.Node, by types.UID, want string) {
	t.Helper()
	undone, _, err := policy.Undo(n, ofDiagnosis(by))
	if err != nil || fmt.Sprint(undone) != want {
		t.Fatalf("undone %v, want %s; %v", undone, want, err)
	}
}

func TestUndo(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"a": "b"}}}
	n.Spec.Taints = []corev1.Taint{*taint("theirs", "x")}
	before := n.DeepCopy()
	do(t, n, policy.Act{Diagnosis: "d1"}, true)
	do(t, n, policy.Act{Diagnosis: "d1"}, false)
	do(t, n, policy.Act{Diagnosis: "d1", Taint: taint("disk", "bad")}, true)
	do(t, n, policy.Act{Diagnosis: "d1", Taint: taint("theirs", "x")}, false)
	do(t, n, policy.Act{Diagnosis: "d2"}, true) // owned by both
	want := `[{"diagnosis":"d1"},{"diagnosis":"d1","taint":{"key":"disk","value":"bad","effect":"NoSchedule"}},{"diagnosis":"d2"}]`
	if n.Annotations[policy.AnnotationActs] != want {
		t.Errorf("%s", n.Annotations[policy.AnnotationActs])
	}
	undo(t, n, "d3", "[]")
	undo(t, n, "d1", "[taint disk=bad:NoSchedule]")
	if !n.Spec.Unschedulable {
		t.Error("d2's cordon is gone")
	}
	undo(t, n, "d2", "[cordon]")
	if diff := cmp.Diff(before, n); diff != "" {
		t.Error(diff)
	}
}

func TestUndoLeavesWhatOthersDid(t *testing.T) {
	n := &corev1.Node{}
	n.Spec.Unschedulable = true // by a person
	do(t, n, policy.Act{Diagnosis: "d1"}, false)
	undo(t, n, "d1", "[]")
	if !n.Spec.Unschedulable {
		t.Error("a person's cordon is gone")
	}

	n = &corev1.Node{}
	do(t, n, policy.Act{Diagnosis: "d1"}, true)
	n.Spec.Unschedulable = false // a person uncordons
	if _, changed, err := policy.Undo(n, ofDiagnosis("")); err != nil || !changed || n.Annotations[policy.AnnotationActs] != "" {
		t.Errorf("the mark stays: %v %v", n.Annotations, err)
	}
	n.Spec.Unschedulable = true // and cordons again
	undo(t, n, "d1", "[]")
	if !n.Spec.Unschedulable {
		t.Error("a person's cordon is gone")
	}

	n = &corev1.Node{}
	do(t, n, policy.Act{Diagnosis: "d1", Taint: taint("disk", "bad")}, true)
	n.Spec.Taints[0].Value = "good" // a person's change
	undo(t, n, "d1", "[]")
	if len(n.Spec.Taints) != 1 {
		t.Error("a changed taint is gone")
	}
	if _, err := policy.Do(n, policy.Act{Diagnosis: "d1", Taint: taint("disk", "bad")}); err == nil {
		t.Error("a taint has two values")
	}
}

func TestUnreadableActs(t *testing.T) {
	for _, text := range []string{"", "x", "{}", "[null]", `[{"diagnosis":"d1","taint":{}}]`, `{"version":2,"acts":[{"diagnosis":"d1"}]}`,
		// Otherwise whoever may write the annotation could have such a value restored.
		`[{"diagnosis":"d1","kind":"label","value":{"key":"node-role.kubernetes.io/control-plane","value":"","before":"x"}}]`,
		`[{"diagnosis":"d1","kind":"annotation","value":{"key":"kernosis.io/acts","value":""}}]`, `[{"diagnosis":"d1","kind":"label","value":{"value":""}}]`,
		`[{"diagnosis":"d1","taint":{"key":"disk"},"kind":"label","value":{"key":"a","value":""}}]`} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{policy.AnnotationActs: text}}}
		n.Spec.Unschedulable = true
		before := n.DeepCopy()
		if undone, _, err := policy.Undo(n, ofDiagnosis("d1")); err == nil || len(undone) > 0 || !strings.Contains(err.Error(), "n1") {
			t.Errorf("%q: %v %v", text, undone, err)
		}
		if _, err := policy.Do(n, policy.Act{Diagnosis: "d1", Taint: taint("a", "b")}); err == nil {
			t.Errorf("%q is written over", text)
		}
		if diff := cmp.Diff(before, n); diff != "" {
			t.Error(diff)
		}
	}
}

// What a newer version has added to the annotation is preserved through all changes: unknown fields
// of known acts, and unknown kinds of acts, which are never taken for cordons.
func TestActsOfANewerVersion(t *testing.T) {
	const (
		cordon  = `{"diagnosis":"d1","since":"2026-01-02T03:04:05Z","more":{"b":[2,1],"a":1}}`
		other   = `{"diagnosis":"d1","kind":"Reboot","at":1}`
		tainted = `{"taint":{"key":"disk","value":"bad","effect":"NoSchedule","later":true},"diagnosis":"d2"}`
	)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{policy.AnnotationActs: "[" + cordon + "," + other + "," + tainted + "]"}}}
	n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{*taint("disk", "bad")}
	left := func(want ...string) {
		t.Helper()
		if got := n.Annotations[policy.AnnotationActs]; got != "["+strings.Join(want, ",")+"]" {
			t.Errorf("%s", got)
		}
	}
	if acts, stale, err := policy.Acts(n); err != nil || stale || fmt.Sprint(acts) != "[cordon taint disk=bad:NoSchedule]" {
		t.Fatal(acts, stale, err)
	}
	do(t, n, policy.Act{Diagnosis: "d3"}, true)
	left(other, cordon, tainted, `{"diagnosis":"d3"}`)
	undo(t, n, "d2", "[taint disk=bad:NoSchedule]")
	undo(t, n, "d3", "[]")
	left(other, cordon)
	undo(t, n, "d1", "[cordon]")
	left(other)
	if n.Spec.Unschedulable || len(n.Spec.Taints) > 0 {
		t.Errorf("%+v", n.Spec)
	}
	n.Spec.Unschedulable = true // by a person: an unknown act is no cordon of ours
	undo(t, n, "d1", "[]")
	if _, _, err := policy.Undo(n, func(policy.Act) bool { return true }); err != nil || !n.Spec.Unschedulable {
		t.Errorf("a person's cordon is gone, %v", err)
	}
	left(other)
}

func TestActsOfANewerForm(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{policy.AnnotationActs: `{"version":2,"acts":[]}`}}}
	if _, _, err := policy.Acts(n); err == nil || !strings.Contains(err.Error(), "newer version of Kernosis: format 2, known up to 1") {
		t.Error(err)
	}
}

// Diagnoses and persons make and undo changes at random; stale marks are cleared after each change.
// A model tracks the owner of each change. Undo never reverts a person's change, and reverts a
// change of diagnoses once all of them have undone it.
func TestUndoAgainstAModel(t *testing.T) {
	diagnoses := []types.UID{"d1", "d2", "d3"}
	acts := []*corev1.Taint{nil, taint("disk", "bad"), taint("net", "bad")}
	for range testenv.Cases(t, 500) {
		n := &corev1.Node{}
		persons := make([]bool, len(acts)) // in force, made by a person
		ours := make([]map[types.UID]bool, len(acts))
		for i := range ours {
			ours[i] = make(map[types.UID]bool)
		}
		for range 30 {
			i, by := rand.N(len(acts)), diagnoses[rand.N(len(diagnoses))]
			switch rand.N(4) {
			case 0: // a person makes it: no effect if it is already in force
				if len(ours[i]) == 0 {
					persons[i] = true
					set(n, acts[i], true)
				}
			case 1: // a person undoes it, whoever made it
				persons[i] = false
				clear(ours[i])
				set(n, acts[i], false)
				if _, _, err := policy.Undo(n, ofDiagnosis("")); err != nil {
					t.Fatal(err)
				}
			case 2:
				if _, err := policy.Do(n, policy.Act{Diagnosis: by, Taint: acts[i]}); err != nil {
					t.Fatal(err)
				}
				if !persons[i] {
					ours[i][by] = true
				}
			case 3:
				if _, _, err := policy.Undo(n, ofDiagnosis(by)); err != nil {
					t.Fatal(err)
				}
				for i := range ours {
					delete(ours[i], by)
				}
			}
			model := &corev1.Node{}
			marks := 0
			for i := range acts {
				set(model, acts[i], persons[i] || len(ours[i]) > 0)
				marks += len(ours[i])
			}
			if diff := cmp.Diff(model.Spec, n.Spec, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b corev1.Taint) bool { return a.Key < b.Key })); diff != "" {
				t.Fatal(diff)
			}
			if have, stale, err := policy.Acts(n); err != nil || stale || len(have) != marks {
				t.Fatalf("%d marks, want %d, stale %v, %v", len(have), marks, stale, err)
			}
		}
	}
}

// The same for values of a label and an annotation: persons and diagnoses set them, and the last
// person's value is restored once all diagnoses have undone theirs.
func TestUndoOfValuesAgainstAModel(t *testing.T) {
	diagnoses, values := []types.UID{"d1", "d2", "d3"}, []string{"", "sick", "worse"}
	type state struct {
		persons string // the last person's value; "-": none
		value   string
		ours    map[types.UID]bool // who has set value
	}
	for range testenv.Cases(t, 500) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}
		states := []*state{{persons: "-", ours: map[types.UID]bool{}}, {persons: "-", ours: map[types.UID]bool{}}}
		of := func(i int) map[string]string { return []map[string]string{n.Labels, n.Annotations}[i] }
		for range 30 {
			i, by, value := rand.N(2), diagnoses[rand.N(3)], values[rand.N(3)]
			s := states[i]
			switch rand.N(4) {
			case 0: // a person sets it: no effect if it is already set
				if len(s.ours) == 0 || s.value != value {
					s.persons = value
					clear(s.ours)
				}
				of(i)["state"] = value
			case 1:
				s.persons = "-"
				clear(s.ours)
				delete(of(i), "state")
			case 2:
				v := &policy.Value{Key: "state", Value: value}
				act := policy.Act{Diagnosis: by, Kind: []string{policy.KindLabel, policy.KindAnnotation}[i], Value: v}
				if _, err := policy.Do(n, act); err != nil {
					t.Fatal(err)
				}
				switch {
				case len(s.ours) > 0 && s.value == value:
					s.ours[by] = true
				case len(s.ours) > 0 || s.persons != value:
					clear(s.ours)
					s.ours[by], s.value = true, value
				}
			case 3:
				if _, _, err := policy.Undo(n, ofDiagnosis(by)); err != nil {
					t.Fatal(err)
				}
				for _, s := range states {
					delete(s.ours, by)
				}
			}
			if _, _, err := policy.Undo(n, ofDiagnosis("")); err != nil { // clears stale marks after each change
				t.Fatal(err)
			}
			marks := 0
			for i, s := range states {
				want := s.persons
				if len(s.ours) > 0 {
					want = s.value
				}
				have, ok := of(i)["state"]
				if !ok {
					have = "-"
				}
				if have != want {
					t.Fatalf("%d: %q, want %q: %v", i, have, want, n.Annotations)
				}
				marks += len(s.ours)
			}
			if have, stale, err := policy.Acts(n); err != nil || stale || len(have) != marks {
				t.Fatalf("%v, want %d marks, stale %v, %v", have, marks, stale, err)
			}
		}
	}
}

// A full annotation does not prevent a change that is already Kernosis' own: its oldest mark makes
// room. Only a new change is refused.
func TestAFullListOfActs(t *testing.T) {
	value := func(by, value string) policy.Act {
		return policy.Act{Diagnosis: types.UID(by), Kind: policy.KindLabel, Value: &policy.Value{Key: "state", Value: value}}
	}
	uid := func(i int) types.UID { return types.UID(fmt.Sprint("d", i)) }
	for name, act := range map[string]func(i int) policy.Act{
		"cordon": func(i int) policy.Act { return policy.Act{Diagnosis: uid(i)} },
		"taint":  func(i int) policy.Act { return policy.Act{Diagnosis: uid(i), Taint: taint("disk", "bad")} },
		"label":  func(i int) policy.Act { return value(string(uid(i)), "sick") },
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"state": "fine"}}}
			before := n.DeepCopy()
			for i := range 40 {
				do(t, n, act(i), true)
				do(t, n, act(i), false)
			}
			acts, stale, err := policy.Acts(n)
			if err != nil || stale || len(acts) != 32 || acts[0].Diagnosis != uid(8) || acts[31].Diagnosis != uid(39) || !act(0).InForce(n) {
				t.Fatalf("%v %v %v", acts, stale, err)
			}
			full := n.DeepCopy()
			if changed, err := policy.Do(n, policy.Act{Diagnosis: "d1", Taint: taint("net", "bad")}); changed || err == nil || !strings.Contains(err.Error(), "already has 32 acts") {
				t.Errorf("a new change: %v %v", changed, err)
			}
			if diff := cmp.Diff(full, n); diff != "" {
				t.Error(diff)
			}
			for i := range 39 {
				undo(t, n, uid(i), "[]")
			}
			undo(t, n, uid(39), "["+act(39).String()+"]")
			if diff := cmp.Diff(before, n, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
	// Another value replaces all marks of the previous one.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"state": "fine"}}}
	for i := range 32 {
		do(t, n, value(fmt.Sprint("d", i), "sick"), true)
	}
	do(t, n, value("d32", "worse"), true)
	undo(t, n, "d32", "[label state=worse]")
	if n.Labels["state"] != "fine" {
		t.Errorf("%v", n.Labels)
	}
}

// A value that is too long to be restored is not replaced.
func TestALongValueIsLeft(t *testing.T) {
	long := strings.Repeat("x", 4097)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"state": long}}}
	if changed, err := policy.Do(n, policy.Act{Diagnosis: "d1", Kind: policy.KindAnnotation, Value: &policy.Value{Key: "state", Value: "sick"}}); err == nil || changed || n.Annotations["state"] != long {
		t.Errorf("%v %v", changed, err)
	}
}

// set puts a node into the state with or without an act.
func set(n *corev1.Node, act *corev1.Taint, on bool) {
	if act == nil {
		n.Spec.Unschedulable = on
		return
	}
	var rest []corev1.Taint
	for _, have := range n.Spec.Taints {
		if !have.MatchTaint(act) {
			rest = append(rest, have)
		}
	}
	if on {
		rest = append(rest, *act)
	}
	n.Spec.Taints = rest
}

// FuzzActs: whatever the annotation contains, which anybody who may change the node can write,
// nothing panics, and what Undo and Do leave can be read again.
func FuzzActs(f *testing.F) {
	f.Add(`[{"diagnosis":"d1"},{"diagnosis":"d2","taint":{"key":"disk","value":"bad","effect":"NoSchedule"}}]`)
	f.Add(`[{"diagnosis":"d1","taint":{"key":"disk"}},{"diagnosis":"d1","taint":{"key":"disk"}}]`)
	f.Add(`[{"diagnosis":"d1","kind":"label","value":{"key":"a","value":"b","before":"c"}},{"diagnosis":"d2","kind":"annotation","value":{"key":"a","value":"b"}}]`)
	f.Add(`[null]`)
	f.Add(`[{"diagnosis":"d1","kind":"Reboot"},{"diagnosis":"d1","since":1}]`)
	f.Fuzz(func(t *testing.T, text string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{policy.AnnotationActs: text}}}
		n.Spec.Unschedulable = true
		n.Spec.Taints = []corev1.Taint{*taint("disk", "bad"), *taint("theirs", "")}
		n.Labels, n.Annotations["a"] = map[string]string{"a": "b"}, "b"
		if _, _, err := policy.Acts(n); err != nil {
			return
		}
		if _, err := policy.Do(n, policy.Act{Diagnosis: "d3", Taint: taint("net", "bad")}); err != nil && !strings.Contains(err.Error(), " already has ") {
			t.Fatal(err)
		}
		for _, by := range []types.UID{"d1", "d3"} {
			if _, _, err := policy.Undo(n, ofDiagnosis(by)); err != nil {
				t.Fatal(err)
			}
			acts, stale, err := policy.Acts(n)
			if err != nil || stale {
				t.Fatal(stale, err)
			}
			for _, a := range acts {
				if a.Diagnosis == by {
					t.Fatalf("%s is left", a)
				}
			}
		}
	})
}
