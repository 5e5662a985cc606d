package v1alpha1_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
)

// Package manifest reads a manifest as the server stores it, with defaults. Each field of a spec
// occurs in one of the manifests.
func TestSpecsComeBack(t *testing.T) {
	c, namespace := newClient(t)
	reader, err := manifest.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, test := range apitest.Cases(t) {
		if !test.Accepted() {
			continue
		}
		t.Run(test.Name, func(t *testing.T) {
			set, err := reader.Parse(document.File{Name: "f.yaml", Data: []byte(test.Text)})
			if err != nil {
				t.Fatal(err)
			}
			want := set.Objects()[0]
			have := reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
			text := want.DeepCopyObject().(client.Object)
			text.SetName("")
			text.SetGenerateName("comes-back-")
			if test.Kind == v1alpha1.KindDiagnosis {
				text.SetNamespace(namespace)
			}
			create(t.Context(), t, c, text)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(text), have); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(spec(want).Interface(), spec(have).Interface()); diff != "" {
				t.Errorf("the server's is + : %s", diff)
			}
			given(spec(have), seen)
		})
	}
	for _, obj := range []client.Object{&v1alpha1.Operation{}, &v1alpha1.OperationSet{}, &v1alpha1.Trigger{}, &v1alpha1.Diagnosis{}, &v1alpha1.RemediationPolicy{}} {
		all := make(map[string]bool)
		fields(spec(obj).Type(), all)
		for _, f := range slices.Sorted(maps.Keys(all)) {
			if !seen[f] && f != "DiagnosisSpec.Cancel" { // it has its own test
				t.Errorf("no manifest has %s", f)
			}
		}
	}
}

func spec(obj client.Object) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName("Spec")
}

// ours reports whether a type is a struct of this API.
func ours(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && strings.HasSuffix(t.PkgPath(), "v1alpha1")
}

// fields records all fields of a type and of nested types, as TYPE.FIELD.
func fields(t reflect.Type, all map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if !ours(t) {
		return
	}
	for f := range t.Fields() {
		all[t.Name()+"."+f.Name] = true
		fields(f.Type, all)
	}
}

// given records the fields of a value that are not zero.
func given(v reflect.Value, seen map[string]bool) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			given(v.Elem(), seen)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			given(v.Index(i), seen)
		}
	case ours(v.Type()):
		for f, value := range v.Fields() {
			if !value.IsZero() {
				seen[v.Type().Name()+"."+f.Name] = true
			}
			given(value, seen)
		}
	}
}

func TestStatusesComeBack(t *testing.T) {
	c, namespace := newClient(t)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	micro := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	conditions := []metav1.Condition{{
		Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, ObservedGeneration: 1,
		Reason: v1alpha1.ReasonPathSucceeded, Message: "1, 2, 4", LastTransitionTime: now,
	}}

	dx := diagnosis(namespace, "comes-back")
	set := &v1alpha1.OperationSet{
		ObjectMeta: metav1.ObjectMeta{Name: "comes-back"},
		Spec:       v1alpha1.OperationSetSpec{AdjacencyList: []v1alpha1.Node{{To: []int32{1}}, {ID: 1, Operation: "a"}}},
	}
	trigger := &v1alpha1.Trigger{
		ObjectMeta: metav1.ObjectMeta{Name: "comes-back"},
		Spec: v1alpha1.TriggerSpec{
			OperationSet: "a", SourceTemplate: v1alpha1.SourceTemplate{ProblemTemplate: &v1alpha1.ProblemTemplate{Rules: []string{"a"}}},
		},
	}
	policy := &v1alpha1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "comes-back"}}
	for _, obj := range []client.Object{dx, set, trigger, policy} {
		create(t.Context(), t, c, obj)
	}

	dx.Status = v1alpha1.DiagnosisStatus{
		Conditions: conditions, Phase: v1alpha1.PhaseSucceeded, ObservedGeneration: 1, Subject: "shop/db-0", Action: "cordon",
		StartTime: &micro, CompletionTime: &micro,
		Verdict:       &v1alpha1.Verdict{Reason: "DiskStalled", Message: "nvme1n1"},
		SucceededPath: v1alpha1.Path{1, 2, 4}, FailedPaths: []v1alpha1.Path{{1, 3}}, FailedPathCount: "1",
		Results: []v1alpha1.Result{{
			ID: 1, Operation: "blocked-stacks", State: v1alpha1.ResultSucceeded, Reason: "A", Message: "b", StartTime: &micro,
			Duration: &metav1.Duration{Duration: 41 * time.Millisecond}, Attempts: 1, Values: map[string]string{"tasks": "3"}, Truncated: true,
		}},
		Artifacts: []v1alpha1.Artifact{{Name: "stacks.txt", ID: 1, Node: "n7", Size: resource.MustParse("18Ki"), SHA256: digest, Truncated: true}},
		Plan:      &v1alpha1.Plan{Digest: digest, Steps: []v1alpha1.PlanStep{{ID: 4, Operation: "cordon", Target: "node n7"}}},
		Checkpoint: &v1alpha1.Checkpoint{
			Holder: "kernosis-x7k2p/3f", Time: micro, Running: new(int32(4)),
			Intent: &v1alpha1.Intent{ID: 4, Operation: "cordon", Time: micro},
		},
		Problem: &v1alpha1.Problem{State: v1alpha1.ProblemLasts, Since: micro, Seen: &micro},
		Remediations: []v1alpha1.Remediation{{
			ID: 4, PlanDigest: digest, Verb: v1alpha1.RemediationRun, Reason: v1alpha1.ReasonAllowed, Message: "policy default: Enforce", Time: micro,
			Outcome: &v1alpha1.RemediationOutcome{
				Holder: "c1",
				State:  v1alpha1.ResultSucceeded, Message: "node n7 is cordoned", StartTime: micro, CompletionTime: &micro, Values: map[string]string{"changed": "true"},
			},
		}},
		Targets: &v1alpha1.Targets{Matched: 4, Created: 3, Succeeded: 2, Failed: 1},
	}
	set.Status = v1alpha1.OperationSetStatus{Conditions: conditions, Ready: true, Paths: []v1alpha1.Path{{1}}, PathCount: "1"}
	trigger.Status = v1alpha1.TriggerStatus{Conditions: conditions, LastScheduleTime: &now}
	policy.Status = v1alpha1.RemediationPolicyStatus{
		Conditions: conditions,
		Repairs: []v1alpha1.Repair{{
			Node: "n7", Diagnosis: dx.UID, Operation: "cordon", Holder: "kernosis-controller-0_1", StartTime: now, EndTime: &now,
			Before: &v1alpha1.RepairBefore{Diagnosis: dx.UID, Operation: "restart", StartTime: now, EndTime: &now},
		}},
		Budget:    &v1alpha1.BudgetUse{Nodes: 20, NotReady: 1, Limit: 2, Used: 1, By: []string{"n3: not ready"}},
		Cooldowns: []v1alpha1.Cooldown{{Node: "n8", EndTime: now}},
	}
	for _, obj := range []client.Object{dx, set, trigger, policy} {
		want := reflect.ValueOf(obj.DeepCopyObject()).Elem().FieldByName("Status")
		if err := c.Status().Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		have := reflect.ValueOf(obj).Elem().FieldByName("Status")
		times := cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })
		microTimes := cmp.Comparer(func(a, b metav1.MicroTime) bool { return a.Equal(&b) })
		if diff := cmp.Diff(want.Interface(), have.Interface(), times, microTimes); diff != "" {
			t.Errorf("the server's is + : %s", diff)
		}
		all, seen := make(map[string]bool), make(map[string]bool)
		fields(have.Type(), all)
		given(have, seen)
		for _, f := range slices.Sorted(maps.Keys(all)) {
			if !seen[f] {
				t.Errorf("%s is not tried", f)
			}
		}
	}
}
