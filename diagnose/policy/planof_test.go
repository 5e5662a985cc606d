package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func TestPlanOf(t *testing.T) {
	d := &v1alpha1.Diagnosis{
		ObjectMeta: metav1.ObjectMeta{UID: "u"},
		Spec:       v1alpha1.DiagnosisSpec{NodeName: "n7", Parameters: v1alpha1.Parameters{"unit": "kubelet"}},
		Status: v1alpha1.DiagnosisStatus{Results: []v1alpha1.Result{
			{ID: 1, Operation: "a", Values: map[string]string{"x": "1", "y": "1"}},
			{ID: 2, Operation: "b", Values: map[string]string{"x": "2"}},
			{ID: 3, Operation: "c", Truncated: true},
		}},
	}
	spec := &v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "restart-unit"}}}
	plan, err := PlanOf(d, 4, "restart", spec, []int{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	want := &Plan{Diagnosis: "u", Node: "n7", Steps: []Step{{
		ID: 4, Operation: "restart", Spec: *spec,
		Parameters: map[string]string{"unit": "kubelet"}, Results: map[string]string{"x": "2", "y": "1"},
	}}}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Error(diff)
	}
	plan.Steps[0].Parameters["unit"] = "other"
	if d.Spec.Parameters["unit"] != "kubelet" {
		t.Error("the Diagnosis was changed with the plan")
	}
	for dependence, why := range map[int]string{3: "node 3 (c) are too long", 5: "node 5 has no result"} {
		if _, err := PlanOf(d, 4, "restart", spec, []int{dependence}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
}
