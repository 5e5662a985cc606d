package cluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/trigger"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/diagnose/why/cluster"
)

// An excluded cause has the name of its check, by which it contradicts verdicts of older Diagnoses.
func TestExcludedCauseOfADiagnosis(t *testing.T) {
	d := &v1alpha1.Diagnosis{Status: v1alpha1.DiagnosisStatus{Results: []v1alpha1.Result{
		{ID: 1, Operation: "check-disk-stalled", State: v1alpha1.ResultRefuted, Reason: "NoDiskStalled", Message: "3 disks"},
	}}}
	want := []why.Finding{{Operation: "check-disk-stalled", Reason: "NoDiskStalled", Message: "3 disks"}}
	if diff := cmp.Diff(want, cluster.Diagnosis(d).Excluded); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The Diagnoses of a failing probe have no parameter podUID. Their verdict is still the cause of the
// pod's problem, once however often the problem recurred.
func TestVerdictOnAProbe(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	in := why.Input{
		Subject: why.Subject{Kind: why.KindPod, Namespace: "shop", Name: "web-1", UID: "u"}, Now: at.Add(time.Minute), Since: time.Hour,
		Problems: []why.Problem{{From: why.FromAPI, Reason: "ProbeNoRoute", Message: "no route to 10.0.0.7", Pod: "u", First: at, Last: at, Count: 2}},
	}
	for _, name := range []string{"probe-failure-1", "probe-failure-2"} {
		d := &v1alpha1.Diagnosis{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at), Annotations: map[string]string{trigger.AnnotationPodUID: "u"}},
			Spec: v1alpha1.DiagnosisSpec{
				PodReference: &v1alpha1.PodReference{Namespace: "shop", Name: "web-1"},
				Parameters:   v1alpha1.Parameters{"rule": "probe-no-route", "reason": "ProbeNoRoute"},
			},
			Status: v1alpha1.DiagnosisStatus{Verdict: &v1alpha1.Verdict{Reason: "NoRoute", Message: "the node has no route"}},
		}
		in.Diagnoses = append(in.Diagnoses, cluster.Diagnosis(d))
	}
	a := why.Build(in)
	if len(a.Causes) != 1 || a.Causes[0].Reason != "NoRoute" || !cmp.Equal(a.Causes[0].Effects, []string{"no route to 10.0.0.7"}) {
		t.Errorf("%+v", a.Causes)
	}
}
