package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func TestTrim(t *testing.T) {
	whole := func(change func(*v1alpha1.Diagnosis)) *v1alpha1.Diagnosis {
		d := &v1alpha1.Diagnosis{
			ObjectMeta: metav1.ObjectMeta{
				Labels:        map[string]string{v1alpha1.LabelTrigger: "hung", "team": "db"},
				Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "kernosis.io/trigger-subject": "pg"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			},
			Spec: v1alpha1.DiagnosisSpec{NodeName: "n7", Parameters: v1alpha1.Parameters{"pid": "811"}},
			Status: v1alpha1.DiagnosisStatus{
				Phase:     v1alpha1.PhaseRunning,
				Results:   []v1alpha1.Result{{ID: 1, State: v1alpha1.ResultSucceeded, Message: "it is", Values: map[string]v1alpha1.ResultValue{"a": "b"}}},
				Artifacts: []v1alpha1.Artifact{{Name: "1-a"}}, FailedPaths: []v1alpha1.Path{{1}},
			},
		}
		change(d)
		return d
	}
	for name, c := range map[string]struct {
		change                      func(*v1alpha1.Diagnosis)
		labels, parameters, results int
		values                      bool
	}{
		"runs":                {func(*v1alpha1.Diagnosis) {}, 1, 0, 0, false},
		"is to be placed":     {func(d *v1alpha1.Diagnosis) { d.Spec.NodeName = "" }, 1, 1, 0, false},
		"has others":          {func(d *v1alpha1.Diagnosis) { d.Spec.TargetSelector = &v1alpha1.TargetSelector{} }, 2, 1, 0, false},
		"waits for a repair":  {func(d *v1alpha1.Diagnosis) { d.Status.Results[0].State = v1alpha1.ResultAwaitingApproval }, 1, 1, 1, false},
		"a repair is allowed": {func(d *v1alpha1.Diagnosis) { d.Status.Remediations = []v1alpha1.Remediation{{ID: 1}} }, 1, 1, 1, false},
		"has ended": {func(d *v1alpha1.Diagnosis) {
			complete(d, metav1.ConditionTrue, v1alpha1.ReasonPathSucceeded, "", at(1))
		}, 1, 1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := whole(c.change)
			if _, err := trimDiagnosis(d); err != nil {
				t.Fatal(err)
			}
			values := len(d.Status.Results) > 0 && d.Status.Results[0].Values != nil
			if len(d.Labels) != c.labels || len(d.Annotations) != c.labels || len(d.Spec.Parameters) != c.parameters || len(d.Status.Results) != c.results || values != c.values || d.ManagedFields != nil || d.Status.Artifacts != nil || d.Status.FailedPaths != nil {
				t.Errorf("%+v\n%+v", d.ObjectMeta, d)
			}
		})
	}
}

// Of an ended Diagnosis, only the messages of its repairs are kept: Events quote them.
func TestTrimKeepsMessagesOfRepairs(t *testing.T) {
	d := &v1alpha1.Diagnosis{}
	for id := range int32(3) {
		d.Status.Results = append(d.Status.Results, v1alpha1.Result{ID: id + 1, State: v1alpha1.ResultFailed, Message: "it failed", Values: map[string]v1alpha1.ResultValue{"a": "b"}})
	}
	d.Status.Remediations = []v1alpha1.Remediation{{ID: 2, Verb: v1alpha1.RemediationWithheld}, {ID: 3, Verb: v1alpha1.RemediationRun}}
	complete(d, metav1.ConditionTrue, v1alpha1.ReasonPathSucceeded, "", at(1))
	trim(d)
	for i, want := range []string{"", "", "it failed"} {
		if r := d.Status.Results[i]; r.Message != want || r.Values != nil {
			t.Errorf("%+v", r)
		}
	}
}
