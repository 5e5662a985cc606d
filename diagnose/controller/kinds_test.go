package controller

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
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
		}, 1, 0, 1, false},
		"was refused": {func(d *v1alpha1.Diagnosis) {
			d.Spec.NodeName, d.Status.Results = "", nil
			complete(d, metav1.ConditionTrue, v1alpha1.ReasonNotAllowed, "", at(1))
		}, 1, 0, 0, false},
		"has ended with a repair": {func(d *v1alpha1.Diagnosis) {
			d.Status.Remediations = []v1alpha1.Remediation{{ID: 1}}
			complete(d, metav1.ConditionTrue, v1alpha1.ReasonPathSucceeded, "", at(1))
		}, 1, 1, 1, false}, // a follow-up gets them
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

// Users of a namespace choose the metadata of their Diagnoses. The cache keeps only what is read.
func TestTrimKeepsOnlyKnownMetadata(t *testing.T) {
	owner := *metav1.NewControllerRef(&v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{Name: "parent", UID: "u"}}, v1alpha1.GroupVersion().WithKind(v1alpha1.KindDiagnosis))
	labels := map[string]string{v1alpha1.LabelTrigger: "hung", v1alpha1.LabelParent: "u", trigger.LabelSource: "alert"}
	annotations := map[string]string{
		v1alpha1.AnnotationFollows: "a/1", trigger.AnnotationTriggeredBy: "b", trigger.AnnotationSubject: "c",
		trigger.AnnotationEpisode: "d", trigger.AnnotationPodUID: "e", trigger.AnnotationOmitted: "f",
	}
	d := &v1alpha1.Diagnosis{ObjectMeta: metav1.ObjectMeta{
		Labels: maps.Clone(labels), Annotations: maps.Clone(annotations), Finalizers: []string{"example.com/keep"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("a", 1<<20)}, owner},
	}}
	d.Labels["kernosis.io/mine"], d.Annotations["kernosis.io/mine"] = "x", strings.Repeat("a", 200<<10)
	trim(d)
	if !maps.Equal(d.Labels, labels) || !maps.Equal(d.Annotations, annotations) || d.Finalizers != nil {
		t.Errorf("labels %v, annotations of %d, finalizers %v", d.Labels, len(d.Annotations), d.Finalizers)
	}
	if len(d.OwnerReferences) != 1 || d.Parent() == nil || d.Parent().UID != "u" {
		t.Errorf("%d owners", len(d.OwnerReferences))
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
