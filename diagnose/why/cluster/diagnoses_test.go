package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
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
